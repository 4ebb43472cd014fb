/** The words of SQL in which SQLite differs. */
import type { EpochMs } from "../../units.ts";
import type { SqlDialect } from "../sql.ts";

export const sqliteWords = {
  parameter: (n: number) => `?${n}`,
  items: (array: string) => `json_each(${array}) e`,
  // One thread writes, one transaction after the other.
  forUpdate: "",
} as const;

export function sqliteDialect(ledgerMs: () => EpochMs): SqlDialect {
  return { ...sqliteWords, ledgerMs };
}
