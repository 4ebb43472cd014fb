/**
 * Imports a list of accounts row by row: opens the account, or compares it with the row, and then
 * gives it a key and its person a link. All of it is actions of the API, each in a commit of its
 * own.
 *
 * A list keeps each secret before the next row. A repetition skips what is listed or used, and
 * makes the others anew. So a stop at any moment loses no secret that works.
 *
 * Knows neither files nor the command line: the service imports what a page sends.
 */
import type { InvitationJson } from "../accounts/invitations.ts";
import type { AccountJson, NewKeyJson } from "../accounts/operator-objects.ts";
import type { PersonJson } from "../accounts/person-objects.ts";
import { invariant } from "../errors.ts";
import { ApiError } from "./api-error.ts";

/** What the actions of an import return. */
export interface ActionResults {
  showAccount: AccountJson;
  openAccount: AccountJson;
  setContact: AccountJson;
  makeKey: NewKeyJson;
  rotateKey: NewKeyJson;
  inviteAccount: InvitationJson;
  listPeople: { data: PersonJson[]; next: string | null };
}

/** Runs an action of the API with its JSON. Throws an `ApiError` if it is refused. */
export type RunAction = <Id extends keyof ActionResults>(
  action: Id,
  json: object,
) => Promise<{ result: ActionResults[Id]; isNew: boolean }>;

const contactFields = ["owner", "email", "note", "external_id"] as const;
export const importColumns = ["account", "plan", ...contactFields, "additional", "payment"] as const;
type ImportColumn = (typeof importColumns)[number];

/** An account of a list, as its cells are. An absent cell leaves its field as it is. */
export type ImportRow = { line: number; account: string } & Partial<Record<ImportColumn, string>>;

/** Keeps secrets of one kind. A secret that it has added is safe when `add` resolves. */
export interface SecretList {
  /** `names`: the account, and the address of a link. */
  has(...names: string[]): boolean;
  add(...cells: string[]): Promise<void>;
}

interface ImportOptions {
  /** Changes nothing. */
  dryRun: boolean;
  /** Sets the contacts of accounts that exist. */
  updates: boolean;
  /** Each account gets a key. */
  keys: SecretList | null;
  /** The person of each account gets a link. */
  links: SecretList | "mail" | null;
}

/** What became of a row, or would. */
export interface ImportedRow {
  line: number;
  account: string;
  result: "opened" | "updated" | "unchanged" | "refused";
  changes: string[];
  /** What the account has otherwise than the row, and keeps. */
  differences: string[];
  /** `kept`: the list lacks it, and it was used, changed or revoked. `due`: in a dry run. */
  key: "made" | "rotated" | "listed" | "kept" | "due" | null;
  link: "listed" | "made" | "used" | "no_address" | "due" | null;
  /** Why the row, or the rest of it, was refused. */
  fault: { column: ImportColumn | null; message: string } | null;
}

/** Whether it concerns no row, and so ends an import. */
export function isLasting({ status, code }: ApiError): boolean {
  // Of an account, and of an address.
  if (code === "balance_unavailable" || code === "mail_failed") return false;
  return (
    status >= 500 || [401, 403, 429].includes(status) || code === "no_portal_url" || code === "no_mail_server"
  );
}

export async function* importAccounts(
  rows: readonly ImportRow[],
  run: RunAction,
  options: ImportOptions,
): AsyncGenerator<ImportedRow> {
  const { keys, links } = options;
  for (const row of rows) {
    const { line, account } = row;
    const done: ImportedRow = {
      line,
      account,
      result: "refused",
      changes: [],
      differences: [],
      key: null,
      link: null,
      fault: null,
    };
    try {
      const { email } = await importAccount(row, done, run, options);
      if (keys !== null) done.key = await giveKey(account, keys, run, options);
      if (links !== null) done.link = await giveLink({ ...done, email }, links, run, options);
    } catch (error) {
      if (!(error instanceof ApiError) || isLasting(error)) throw error;
      done.fault = { column: importColumnOf(error.param), message: error.message };
    }
    yield done;
  }
}

/** Opens the account, or compares it with the row. Returns it as it is then. */
async function importAccount(
  row: ImportRow,
  done: ImportedRow,
  run: RunAction,
  { dryRun, updates }: ImportOptions,
): Promise<AccountJson> {
  const { account: id, plan, additional, payment } = row;
  const contact = contactFields.flatMap((field) => (row[field] === undefined ? [] : [[field, row[field]]]));
  const found = await unlessRefused(run("showAccount", { account: id }), "account_not_found");
  let account = found?.result;
  if (account === undefined) {
    if (plan === undefined) {
      const message = `There is no account ${id} yet. Name the plan to open it on.`;
      throw new ApiError(404, "account_not_found", message, "plan");
    }
    const draft = { id, plan, ...Object.fromEntries(contact), ...creditFieldsIn(row) };
    const opened = await run("openAccount", dryRun ? { ...draft, dry_run: true } : draft);
    account = opened.result;
    if (opened.isNew || dryRun) {
      done.result = "opened";
      const of = payment === undefined ? "" : ` of payment ${payment}`;
      const more = additional === undefined ? "" : `, with ${additional} additional credits${of}`;
      done.changes.push(
        `opened on plan ${plan}${more}`,
        ...contact.map(([field, text]) => `${field} ${text}`),
      );
      return account;
    }
  }
  const present = account;
  if (plan !== undefined && plan !== present.plan)
    done.differences.push(`plan stays ${present.plan}, and the row has ${plan}`);
  if (additional !== undefined && !(await hasOpenedWith({ ...row, plan: plan ?? present.plan }, run)))
    done.differences.push(`its credits stay, and the row has ${additional} additional credits`);
  const changed = contactFields.filter((field) => row[field] !== undefined && row[field] !== present[field]);
  if (!updates)
    done.differences.push(
      ...changed.map((field) => `${field} stays ${present[field] ?? "empty"}, and the row has ${row[field]}`),
    );
  else if (changed.length > 0) {
    const fields = Object.fromEntries(changed.map((field) => [field, row[field]]));
    if (dryRun) account = { ...present, ...fields };
    else account = (await run("setContact", { account: id, ...fields })).result;
    done.changes.push(
      ...changed.map((field) => `${field} ${row[field]} in place of ${present[field] ?? "none"}`),
    );
  }
  done.result = done.changes.length > 0 ? "updated" : "unchanged";
  return account;
}

function creditFieldsIn({ additional, payment }: ImportRow): object {
  const credits = additional === undefined ? {} : { credits: numberIn(additional) };
  return payment === undefined ? credits : { ...credits, payment_id: payment };
}

/** Whether the account was opened with the credits of the row: then it is a repetition. */
async function hasOpenedWith(row: ImportRow, run: RunAction): Promise<boolean> {
  const { account: id, plan } = row;
  const opening = run("openAccount", { id, plan, ...creditFieldsIn(row), dry_run: true });
  return (await unlessRefused(opening, "account_exists")) !== null;
}

/** Null: it is refused with this code. */
async function unlessRefused<Outcome>(running: Promise<Outcome>, code: string): Promise<Outcome | null> {
  try {
    return await running;
  } catch (error) {
    if (error instanceof ApiError && error.code === code) return null;
    throw error;
  }
}

/**
 * Gives the account its first key. A key that the list lacks and that nobody has used gets a new
 * secret: a stop has lost the one before.
 */
async function giveKey(
  account: string,
  keys: SecretList,
  run: RunAction,
  { dryRun }: ImportOptions,
): Promise<ImportedRow["key"]> {
  if (keys.has(account)) return "listed";
  if (dryRun) return "due";
  const first = { account, operation_id: `import-first-key-${account}`, name: "first" };
  const made = await unlessRefused(run("makeKey", first), "operation_differs");
  // The key was made before, and changed since.
  if (made === null) return "kept";
  const { id, key, last_used_at: usedAt, revoked_at: revokedAt } = made.result;
  if (key !== null) {
    await keys.add(account, id, key);
    return "made";
  }
  if (usedAt !== null || revokedAt !== null) return "kept";
  const rotation = { key: id, operation_id: `import-${crypto.randomUUID()}`, overlap: "none" };
  const { result: rotated } = await run("rotateKey", rotation);
  invariant(rotated.key !== null, "a rotation with a new id returns the secret");
  await keys.add(account, id, rotated.key);
  return "rotated";
}

async function giveLink(
  { account, email, result }: Pick<ImportedRow, "account" | "result"> & Pick<AccountJson, "email">,
  links: SecretList | "mail",
  run: RunAction,
  { dryRun }: ImportOptions,
): Promise<ImportedRow["link"]> {
  if (email === null) return "no_address";
  if (links !== "mail" && links.has(account, email)) return "listed";
  if (result !== "opened" && (await isUsed(account, email, run))) return "used";
  if (dryRun) return "due";
  const { result: made } = await run("inviteAccount", { account, send: links === "mail" ? "mail" : "link" });
  if (links !== "mail") {
    invariant(made.link !== null, "a link that is not mailed is returned");
    await links.add(account, email, made.link);
  }
  return "made";
}

/** Whether a person of the account and the address has used a link. */
async function isUsed(account: string, email: string, run: RunAction): Promise<boolean> {
  const address = email.toLowerCase();
  for (let after: string | null | undefined; after !== null; ) {
    const page = { account, limit: 500, ...(after === undefined ? {} : { after }) };
    const { result: people } = await run("listPeople", page);
    if (people.data.some((each) => each.issuer === "invitation" && each.email?.toLowerCase() === address))
      return true;
    after = people.next;
  }
  return false;
}

/**
 * Text that is no whole number stays, and its rule refuses it. In many spreadsheets, `1.000` is a
 * thousand.
 */
function numberIn(cell: string): number | string {
  return /^-?\d{1,15}$/.test(cell) ? Number(cell) : cell;
}

function importColumnOf(param: string | null): ImportColumn | null {
  const names: Record<string, ImportColumn> = { id: "account", credits: "additional", payment_id: "payment" };
  return importColumns.find((column) => column === param) ?? names[param ?? ""] ?? null;
}
