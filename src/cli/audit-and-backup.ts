/**
 * `inkwell audit` and `inkwell backup`: check and copy the ledger, also while the service runs.
 */
import path from "node:path";
import { Command } from "commander";
import { auditObject } from "../accounts/operator-objects.ts";
import { inkwell, shipped } from "../invocation.ts";
import { type AuditReport, type Broken, faultyRowsMax } from "../store/audit.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { count, table } from "./format.ts";
import { examples } from "./help.ts";

export function auditCommand(cli: Cli): Command {
  return new Command("audit")
    .description(
      "check the ledger, also while the service runs; exit 1 with the faulty rows if it is damaged",
    )
    .action(async () => {
      const report = await cli.host.services.audit(cli.config());
      cli.print(auditObject.of(report), report.broken.map(brokenText).join("\n\n"));
      cli.remark(verdict(report));
      if (report.broken.length > 0) cli.exitCode = 1;
    });
}

export function backupCommand(cli: Cli): Command {
  return new Command("backup")
    .description("copy the ledger into a new file, also while the service runs")
    .argument("<file>", "a file that does not exist yet; only its owner can read it")
    .addHelpText("after", examples(inkwell("backup /backups/inkwell-$(date +%F).db")))
    .action(async (name: string) => {
      const { cwd, services } = cli.host;
      const file = path.resolve(cwd, name);
      const { bytes } = await services.backup(cli.config(), file);
      cli.print({ file, bytes }, "");
      cli.remark(
        `The ledger is copied to ${file} (${grouped(bytes)} bytes). To restore it: ${shipped("docs/operating/backup.md")}.`,
      );
    });
}

function verdict({ broken, journalRows }: AuditReport): string {
  const checked = count(journalRows, "journal entry", "journal entries");
  if (journalRows === 0) return "The ledger has no entries: there was nothing to check.";
  if (broken.length === 0) return `The ledger is sound: ${checked} checked.`;
  return (
    `The ledger is not sound: ${count(broken.length, "rule is", "rules are")} broken, ${checked} checked. ` +
    `See ${shipped("docs/operating/incidents.md")}.`
  );
}

function brokenText({ invariant, rows }: Broken): string {
  const shown = rows.length === faultyRowsMax ? ` (the first ${faultyRowsMax} rows)` : "";
  const columns = Object.keys(rows[0] ?? {}).map((head) => ({
    head,
    cell: (row: Broken["rows"][number]) => String(row[head] ?? "-"),
  }));
  return `Broken: ${invariant}${shown}\n${table(rows, columns)}`;
}
