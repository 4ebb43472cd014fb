/**
 * `inkwell audit` and `inkwell backup`: check and copy the ledger, also while the service runs.
 */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Command } from "commander";
import { auditObject } from "../accounts/operator-objects.ts";
import type { Config } from "../config/load.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { inkwell, shipped } from "../invocation.ts";
import { type AuditReport, type Broken, faultyRowsMax } from "../store/audit-report.ts";
import { readSeal, type Seal, sealText } from "../store/seal.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { count, table } from "./format.ts";
import { examples } from "./help.ts";

interface AuditOptions {
  seal?: string;
  against?: string;
  record?: boolean;
}

export function auditCommand(cli: Cli): Command {
  return new Command("audit")
    .description(
      "check the ledger, also while the service runs; exit 1 with the faulty rows if it is damaged",
    )
    .option(
      "--seal <file>",
      "write down all facts of a sound ledger, as digests, into this new file; keep it elsewhere",
    )
    .option("--against <file>", "prove that everything in this seal is still there, unchanged")
    .option("--record", "record the result in the database: Health, the metrics and an event show it")
    .addHelpText(
      "after",
      examples(
        inkwell("audit"),
        inkwell("audit --record"),
        inkwell("audit --seal /media/seals/$(date +%F).seal"),
        inkwell("audit --against /media/seals/2027-01-31.seal"),
      ),
    )
    .action(async ({ seal, against, record = false }: AuditOptions) => {
      const { cwd, services } = cli.host;
      const config = await cli.config();
      const known = against === undefined ? null : readSealFile(path.resolve(cwd, against));
      const report = await cli.spinner.during(
        () => "Checking the ledger",
        () => services.audit(config, known),
      );
      const problem = record ? await recordProblem(cli, config, report) : null;
      if (seal !== undefined && report.broken.length === 0) {
        const file = path.resolve(cwd, seal);
        writeSealFile(file, sealText(report.checkedMs, report.lists));
        cli.remark(
          `The facts are sealed in ${file}. Keep it out of reach of everybody who can write to the database.`,
        );
      }
      cli.print(
        { ...auditObject.of(report), recorded: record && problem === null },
        report.broken.map((each) => brokenText(each, cli)).join("\n\n"),
      );
      cli.remark(verdict(report));
      if (problem !== null) cli.exitCode = 1;
      if (record)
        cli.remark(
          problem === null
            ? "The result is recorded in the database."
            : `The result could not be recorded: ${problem}`,
        );
      if (report.broken.length === 0) return;
      cli.exitCode = 1;
      if (seal !== undefined) {
        cli.remark(
          `Nothing is sealed: only a sound ledger is. After a restore, compare with a seal that is older than the backup: ${shipped("docs/operating/audit.md")}, "After a restore".`,
        );
      }
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
      const config = await cli.config();
      const { bytes } = await cli.spinner.during(
        () => "Copying the ledger",
        () => services.backup(config, file),
      );
      cli.print({ file, bytes }, "");
      cli.remark(
        `The ledger is copied to ${file} (${grouped(bytes)} bytes). To restore it: ${shipped("docs/operating/backup.md")}.`,
      );
    });
}

/** Records a result. Returns why it could not: it is shown all the same. */
async function recordProblem({ host }: Cli, config: Config, report: AuditReport): Promise<string | null> {
  try {
    const { store } = await host.services.openStore(config, { create: false });
    await store.recordAudit(report).finally(() => store.close());
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

function readSealFile(file: string): Seal {
  try {
    return readSeal(readFileSync(file, "utf8"), file);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`${file} cannot be read: ${messageOf(error)}. Nothing was checked.`, error);
  }
}

function writeSealFile(file: string, text: string): void {
  try {
    writeFileSync(file, text, { flag: "wx", mode: 0o600, flush: true });
  } catch (error) {
    const why = codeOf(error) === "EEXIST" ? "it exists already. Name a new file" : messageOf(error);
    throw new OperatorError(`The seal cannot be written to ${file}: ${why}.`, error);
  }
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

function brokenText({ invariant, rows }: Broken, cli: Cli): string {
  const shown = rows.length === faultyRowsMax ? ` (the first ${faultyRowsMax} rows)` : "";
  const columns = [...new Set(rows.flatMap(Object.keys))].map((head) => ({
    head,
    cell: (row: Broken["rows"][number]) => String(row[head] ?? "-"),
  }));
  return `Broken: ${invariant}${shown}\n${table(rows, columns, cli)}`;
}
