/**
 * Reads the plans of an SQLite file and counts their accounts, without opening the store.
 *
 * Guarantees that the file stays unchanged, and that the result describes one state of it.
 */
import { countAccounts, type PlansInUse, plansInUseOf, readFiles, readVersions } from "../plans.ts";
import { readAsItIs, type SqliteFile } from "./file.ts";
import { Statements } from "./statements.ts";

/** Throws an OperatorError if the file has no ledger of this version. */
export function plansInUseIn(file: SqliteFile): PlansInUse {
  return readAsItIs(file, (db) => {
    db.exec("begin");
    const statements = new Statements(db);
    const rows = (text: string) => statements.rows({ text, values: [] });
    return plansInUseOf(rows(readVersions), rows(readFiles), rows(countAccounts));
  });
}
