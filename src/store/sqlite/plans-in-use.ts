/**
 * Reads the plans of an SQLite file and counts their accounts, without opening the store.
 *
 * Guarantees that the file stays unchanged, even if an older version made it, and that the result
 * describes one state of it.
 */
import { OperatorError } from "../../errors.ts";
import { countAccounts, type PlansInUse, plansInUseOf, readFiles, readVersions } from "../plans.ts";
import { readAsItIs, type SqliteFile, versionOf } from "./file.ts";
import { Statements } from "./query.ts";

/** The oldest schema with plans: migration 0006 made them. */
const versionMin = 6;

/** Throws an OperatorError if the file has no ledger, or one without plans. */
export function plansInUseIn(file: SqliteFile): PlansInUse {
  return readAsItIs(file, (db) => {
    if (versionOf(db, file).version < versionMin)
      throw new OperatorError(`${file.path} was made by an older version, which kept no plans in it`);
    db.exec("begin");
    const statements = new Statements(db);
    const rows = (text: string) => statements.rows({ text, values: [] });
    return plansInUseOf(rows(readVersions), rows(readFiles), rows(countAccounts));
  });
}
