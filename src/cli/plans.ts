/**
 * `inkwell plans`: shows the plans of the database, and makes those of the configuration current.
 */
import type { Command } from "commander";
import type { ConfiguredPlansJson, GrantedJson, PlanJson } from "../accounts/plan-objects.ts";
import { planText } from "../accounts/plan-text.ts";
import { draftPlan, draftSentence } from "../actions/drafts.ts";
import { optionally } from "../actions/field.ts";
import { applyPlans } from "../actions/service.ts";
import { listPlans } from "../actions/views.ts";
import type { DraftJson } from "../http/admin/draft-actions.ts";
import { inkwell } from "../invocation.ts";
import { isSameCap } from "../ledger/caps.ts";
import { actionCommand, commandGroup, commandWith } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { changesText } from "./reload.ts";

interface Changes {
  added: readonly string[];
  changed: readonly string[];
  retired: readonly string[];
}

interface AppliedJson extends Changes {
  applied: boolean;
  warnings: readonly string[];
}

export function plansCommand(cli: Cli): Command {
  return commandGroup(
    "plans",
    "list the plans of the database, draft a change, or make those of the configuration current",
    [
      commandWith(
        {
          words: "plans list",
          about: "list all plans with their newest version and number of accounts",
          fields: { versions: optionally.flag({ about: "earlier versions too" }) },
          examples: ["plans list", "plans list --versions"],
        },
        ({ versions }) => list(cli, versions === true),
      ),
      commandWith(
        {
          words: applyPlans.cli,
          about: "make the plans of the configuration current, even if newer ones replaced them before",
          fields: { dry_run: optionally.flag({ about: "show what would change, and change nothing" }) },
          examples: ["plans apply --dry-run", "plans apply"],
        },
        ({ dry_run }) => apply(cli, dry_run === true),
      ),
      actionCommand(cli, draftPlan, draftTexts(cli)),
    ],
  );
}

/** The lines alone are on stdout, so that they can go into a file. */
export function draftTexts(cli: Cli) {
  return {
    text: ({ yaml }: DraftJson) => yaml.trimEnd(),
    remark: (draft: DraftJson, done: string) =>
      [changesText(draft.changes, cli) || "The draft changes nothing.", draftSentence(draft), done].join(
        "\n",
      ),
  };
}

const columns = [
  ...columnsOf("plan", "id version offered accounts created_at"),
  { head: "GRANTS", cell: (plan: GrantedJson) => planText(plan) },
];

/** Reads the plans of the database, and those of the configuration that differ. */
function read({ api }: Cli) {
  return api.list<PlanJson, { configuration: ConfiguredPlansJson }>(listPlans);
}

async function list(cli: Cli, withEarlier: boolean): Promise<void> {
  const { data: plans, configuration } = await read(cli);
  const rows = plans.flatMap(({ id, offered, accounts, versions }) =>
    versions.slice(0, withEarlier ? undefined : 1).map((plan, index) => ({
      ...plan,
      id,
      offered: index > 0 ? "earlier" : offered ? "offered" : "retired",
      accounts: index > 0 ? "" : accounts,
    })),
  );
  cli.print(plans, table(rows, columns, cli));
  if (!configuration.current)
    cli.remark(`The plans of the configuration differ. To compare them: ${inkwell("plans apply --dry-run")}`);
}

async function apply(cli: Cli, isDryRun: boolean): Promise<void> {
  const { data: plans, configuration } = await read(cli);
  const { current, added, changed, retired } = configuration;
  const previewed: AppliedJson = { applied: false, added, changed, retired, warnings: [] };
  const applied = isDryRun ? previewed : await cli.api.get<AppliedJson>(applyPlans);
  const before = new Map(plans.map(({ id, versions }) => [id, versions[0]]));
  const after = new Map(configuration.plans.map((plan) => [plan.id, plan]));
  cli.print(applied, planChangesText(before, after, applied));
  for (const warning of applied.warnings) cli.remark(warning);
  if (isDryRun && !current)
    cli.remark(`Nothing has changed. To make these plans current: ${inkwell("plans apply")}`);
  else
    cli.remark(
      applied.applied
        ? "The plans of the configuration are current. Limits and models count from the next request on, credits from the next refresh of each account."
        : `The plans of the configuration are current. Nothing has changed. A running service uses the file that it has read: after a change, ${inkwell("reload")} first.`,
    );
}

type Granted = ReadonlyMap<string, GrantedJson | undefined>;

/** Returns one line for each plan that changes. */
export function planChangesText(
  before: Granted,
  after: Granted,
  { added, changed, retired }: Changes,
): string {
  const text = (plan: GrantedJson | undefined) => (plan === undefined ? "" : `: ${planText(plan)}`);
  return [
    ...added.map((id) => `added    ${id}${text(after.get(id) ?? before.get(id))}`),
    ...changed.map(
      (id) =>
        `changed  ${id}${text(after.get(id))}; before${text(before.get(id))}${newCapsText(before.get(id), after.get(id))}`,
    ),
    ...retired.map((id) => `retired  ${id}`),
  ].join("\n");
}

/** Caps that count the same go on with what they have counted. The others begin anew. */
function newCapsText(before: GrantedJson | undefined, after: GrantedJson | undefined): string {
  const capsOf = (plan: GrantedJson | undefined) =>
    (plan?.spending_caps ?? []).map((cap) => ({ ...cap, timezone: plan?.timezone ?? "" }));
  const known = capsOf(before);
  const begun = capsOf(after).filter((cap) => known.every((each) => !isSameCap(each, cap)));
  if (begun.length === 0) return "";
  return `; with nothing spent, these caps begin: ${begun.map(({ name }) => name).join(", ")}`;
}
