/** `inkwell audit`: whether everything that always holds in the ledger does. Exit code 1 where something does not. */
import { Command } from "commander";
import { auditObject } from "../http/admin/objects.ts";
import type { AuditReport, Broken } from "../store/audit.ts";
import { faultyRowsMax } from "../store/audit.ts";
import type { Cli } from "./cli.ts";
import { count, table } from "./format.ts";

export function auditCommand(cli: Cli): Command {
  return new Command("audit")
    .description(
      "check the ledger, also beside a running service; exit 1 and the rows at fault where it is wrong",
    )
    .action(() => audit(cli));
}

async function audit(cli: Cli): Promise<void> {
  const report = await cli.host.services.audit(cli.config());
  cli.print(auditObject.of(report), report.broken.map(brokenText).join("\n\n"));
  cli.remark(verdict(report));
  if (report.broken.length > 0) cli.exitCode = 1;
}

function verdict({ broken, journalRows }: AuditReport): string {
  const checked = count(journalRows, "journal entry", "journal entries");
  if (journalRows === 0) return "The ledger has no entries: there was nothing to check.";
  if (broken.length === 0) return `The ledger is sound: ${checked} checked.`;
  return (
    `The ledger is not sound: ${count(broken.length, "rule is", "rules are")} broken, ${checked} checked. ` +
    "What to do: docs/operating/incidents.md."
  );
}

function brokenText({ invariant, rows }: Broken): string {
  const columns = Object.keys(rows[0] ?? {});
  const cells = rows.map((row) => columns.map((column) => String(row[column] ?? "-")));
  const shown = rows.length === faultyRowsMax ? ` (the first ${faultyRowsMax} rows)` : "";
  return `Broken: ${invariant}${shown}\n${table(
    columns.map((head) => ({ head })),
    cells,
  )}`;
}
