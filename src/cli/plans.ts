/**
 * `inkwell plans`: shows the plans of the database, and makes those of the configuration current.
 */
import { Command } from "commander";
import { isoTime } from "../accounts/json-objects.ts";
import { limitsObject, limitTexts } from "../accounts/plan-limits.ts";
import { planObject } from "../accounts/plan-objects.ts";
import { inkwell } from "../invocation.ts";
import type { Plan, PlanVersion } from "../ledger/plan.ts";
import type { PlanChanges } from "../ledger/plan-section.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { examples } from "./help.ts";

export function plansCommand(cli: Cli): Command {
  const plans = new Command("plans").description(
    "list the plans of the database, or make those of the configuration current",
  );

  plans
    .command("list")
    .description("list all plans with their newest version and number of accounts")
    .option("--versions", "earlier versions too")
    .addHelpText("after", examples(inkwell("plans list"), inkwell("plans list --versions")))
    .action(({ versions = false }: { versions?: boolean }) => list(cli, versions));

  plans
    .command("apply")
    .description("make the plans of the configuration current, even if newer ones replaced them before")
    .option("--dry-run", "show what would change, and change nothing")
    .addHelpText("after", examples(inkwell("plans apply --dry-run"), inkwell("plans apply")))
    .action(({ dryRun = false }: { dryRun?: boolean }) => apply(cli, dryRun));

  return plans;
}

const columns = [
  ...columnsOf("plan", "id version offered accounts created_at"),
  { head: "GRANTS", cell: ({ plan }: { plan: PlanVersion }) => planText(plan) },
];

async function list(cli: Cli, withEarlier: boolean): Promise<void> {
  const config = cli.config();
  await cli.withActions(config, async (actions) => {
    const plans = await actions.plans();
    const rows = plans.flatMap(({ id, isOffered, accounts, versions }) =>
      versions.slice(0, withEarlier ? undefined : 1).map((plan, index) => ({
        ...{ id, version: plan.version, created_at: isoTime(plan.createdMs), plan },
        offered: index > 0 ? "earlier" : isOffered ? "offered" : "retired",
        accounts: index > 0 ? "" : accounts,
      })),
    );
    cli.print(plans.map(planObject.of), table(rows, columns));
    const { kind } = await actions.previewPlans(config.plans);
    if (kind === "unchanged") return;
    cli.remark(`The plans of the configuration differ. To compare them: ${inkwell("plans apply --dry-run")}`);
  });
}

async function apply(cli: Cli, isDryRun: boolean): Promise<void> {
  const config = cli.config();
  await cli.withActions(config, async (actions) => {
    const before = new Map((await actions.plans()).map(({ id, versions }) => [id, versions[0]]));
    const changes = await (isDryRun ? actions.previewPlans(config.plans) : actions.applyPlans(config.plans));
    const { kind, added, changed, retired } = changes;
    const document = { applied: kind === "applied" && !isDryRun, added, changed, retired };
    cli.print(document, kind === "unchanged" ? "" : planChangesText((id) => before.get(id), changes));
    if (kind === "unchanged") cli.remark("The plans of the configuration are current. Nothing has changed.");
    else if (isDryRun)
      cli.remark(`Nothing has changed. To make these plans current: ${inkwell("plans apply")}`);
    else
      cli.remark(
        "The plans of the configuration are current. Limits and models count from the next request on, credits from the next refresh of each account.",
      );
  });
}

/**
 * Returns one line for each plan that changes. `before` returns its newest version from before.
 */
export function planChangesText(
  before: (id: string) => PlanVersion | undefined,
  { added, changed, retired, versions }: PlanChanges,
): string {
  const made = new Map(versions.map((version) => [version.id, version]));
  const text = (version: PlanVersion | undefined) => (version === undefined ? "" : `: ${planText(version)}`);
  return [
    ...added.map((id) => `added    ${id}${text(made.get(id) ?? before(id))}`),
    ...changed.map((id) => `changed  ${id}${text(made.get(id))}; before${text(before(id))}`),
    ...retired.map((id) => `retired  ${id}`),
  ].join("\n");
}

/** Returns what a plan grants, without its name. */
export function planText({ base, overage, limits, models }: Plan): string {
  return [
    `${grouped(base.credits)} credits every ${base.every}, overage ${grouped(overage.credits)} every ${overage.every}`,
    ...limitTexts(limitsObject(limits)),
    ...(models.length === 1 && models[0] === "*" ? [] : [`models ${models.join(" ")}`]),
  ].join(", ");
}
