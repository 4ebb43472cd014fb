/**
 * The texts of mail: plain text, whose first line is the subject. A file with the name of the
 * kind, such as `balance.low.txt`, replaces one. `{name}` stands for a value.
 */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { MailType } from "../config/events.ts";

/** Links are no events: they must not be stored. */
type TextName = MailType | "invitation" | "join";

const texts: Readonly<Record<TextName, string>> = {
  "balance.low": `Credits of {account} are low: {percent} % are spent

Hello {owner},

{percent} % of the {credits} of your account {account} are spent. {left} credits of {of} are left.

This message is sent once a day at most. {stop}
`,
  "balance.cap": `The cap {cap} of {account} is nearly reached: {percent} %

Hello {owner},

{percent} % of the cap {cap} of {whose} are spent. {left} credits of {of} are left until it refills. Credits that you buy do not raise it.

This message is sent once a day at most. {stop}
`,
  "balance.exhausted": `The credits of {account} are used up

Hello {owner},

Your account {account} has no credits left. Requests are refused until credits are added or refilled.

{stop}
`,
  "key.created": `A key of {account} was made: {name}

Hello {owner},

The API key {key} ({name}) of your account {account} was made in the portal on {time}. If you do not expect it, revoke it, or tell the operator of this service.

This message is sent once a day at most.
`,
  "operator.key_created": `An operator key was made: {name}

{by} made the operator key {key} ({name}) with the role {role} on {time}. If you do not expect it, end it, and look at the log of changes.
`,
  "operator.role_given": `{person} has the role {role}

A rule of the configuration gives the person {person} the role {role} since {time}. If you do not expect it, look at the section sign_in and at the groups of the person.
`,
  "key.expiring": `The key {name} of {account} expires on {expires}

Hello {owner},

The API key {key} ({name}) of your account {account} expires on {expires}. Requests with it are refused afterwards. Make a new key before.

{stop}
`,
  "audit.failed": `The audit of the ledger found problems

The audit of {time} found {problems} broken rules. Nothing was changed. The output of the audit has the rows.
`,
  "model.down": `The model {model} is unavailable

The model {model} does not work on the node {node} since {time}. Requests to it are refused.
`,
  "model.out_of_credit": `The account at the provider of {model} is empty

The server {server} of the model {model} refuses requests of the node {node} since {time}, because your account there has no credits. Add credits at the provider, then reload Inkwell.
`,
  invitation: `Your link to {portal}

Hello {owner},

you can use the account {account} at {portal}. Open this link and press the button there. Then make a key.

{link}

The link works once, until {expires}. A newer link ends it. Anyone who has the link is taken for you, so pass it on to nobody.

If you do not expect this message, ignore it.
`,
  // Without the name, which somebody else may have typed.
  join: `Your link to {portal}

Hello,

somebody has asked to join {portal} with this address. Open this link and press the button there: it opens your account. Then make a key.

{link}

The link works once, until {expires}. A newer link ends it. Anyone who has the link is taken for you, so pass it on to nobody.

If you do not expect this message, ignore it.
`,
};

const textBytesMax = 65_536;

/** Reads the file at each mail, so that a changed one counts at once. */
export async function mailTextOf(type: TextName, folder: string | null): Promise<string> {
  if (folder === null) return texts[type];
  const file = join(folder, `${type}.txt`);
  try {
    const text = await readFile(file, "utf8");
    if (text.length > textBytesMax) throw new Error(`${file} is longer than ${textBytesMax} characters`);
    return text;
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
    // Mistyped, or not mounted: the texts of the operator are missing, and not unwanted.
    if (!existsSync(folder)) throw new Error(`the folder ${folder} of events.mail.templates does not exist`);
    return texts[type];
  }
}

/** A value has one line and is put in once, so it brings no header and no other placeholder. */
export function filled(
  text: string,
  values: Readonly<Record<string, string>>,
): { subject: string; text: string } {
  const known = new Map(Object.entries(values));
  const all = text.replace(/\{(\w+)\}/g, (placeholder, name: string) =>
    (known.get(name) ?? placeholder).replace(/[\r\n\p{Cc}]+/gu, " "),
  );
  const [subject = "", ...lines] = all.split(/\r?\n/);
  return { subject: subject.trim(), text: `${lines.join("\n").trim()}\n` };
}
