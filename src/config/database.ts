/**
 * The `database` setting: the file or server of the ledger. A password in its URL is never shown.
 */
import path from "node:path";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

type DatabaseConfig =
  | { kind: "sqlite"; path: string }
  /** `postgres://USER:PASSWORD@HOST:5432/DATABASE`. */
  | { kind: "postgres"; url: string };

export function readDatabase(root: Section, dataDir: string): DatabaseConfig {
  const database = root.placed(
    "database",
    kind.text(
      "sqlite:PATH, such as sqlite:./data/inkwell.db, or postgres://USER:PASSWORD@HOST:5432/DATABASE (percent-encode reserved characters)",
      (value) => /^sqlite:./.test(value) || isServer(value),
      { standIn: "sqlite:inkwell.db", secret: true },
    ),
    { or: `sqlite:${path.join(dataDir, "inkwell.db")}` },
  );
  if (!database.value.startsWith("sqlite:")) return { kind: "postgres", url: database.value };
  return {
    kind: "sqlite",
    path: root.resolve({ ...database, value: database.value.slice("sqlite:".length) }),
  };
}

/**
 * Refuses a `/` or `@` after the host: it belongs to a password without escapes, which messages
 * would show.
 */
function isServer(value: string): boolean {
  if (!/^postgres(ql)?:\/\/./.test(value) || !URL.canParse(value)) return false;
  return /^\/?[^/@]*$/.test(new URL(value).pathname);
}

/** Returns the setting without its password. */
export function databaseText(database: DatabaseConfig): string {
  if (database.kind === "sqlite") return `sqlite:${database.path}`;
  const shown = new URL(database.url);
  if (shown.password !== "") shown.password = "***";
  for (const name of [...shown.searchParams.keys()]) {
    if (/password/i.test(name)) shown.searchParams.set(name, "***");
  }
  return shown.href;
}
