/**
 * The settings that must be equal on all nodes of one database, because they affect credits. All
 * nodes use the plans of the database. Different plans sections in their files still mean that one
 * of the files is outdated.
 */
import { hash } from "node:crypto";
import type { Config } from "../config/load.ts";
import type { Plans } from "../ledger/plan.ts";
import { plansFingerprintOf } from "../ledger/plan-section.ts";
import type { ConfigFingerprint } from "../store/nodes.ts";

/**
 * A model and its price have separate entries, so that a missing model and another price differ.
 */
export function configFingerprintOf({
  plans,
  models,
  events,
}: {
  plans: Plans;
  models: Config["models"];
  events?: Config["events"];
}): ConfigFingerprint {
  return Object.fromEntries([
    ["plans", plansFingerprintOf(plans)],
    ...models.flatMap(({ id, price }) => [
      [`model ${id}`, "offered"],
      [`price of ${id}`, `${price.prompt}/${price.completion}/${price.cachedPrompt ?? price.prompt}`],
    ]),
    ...(events?.endpoints ?? []).map(({ name, url, types }) => [
      `events endpoint ${name}`,
      // A URL can have a secret in its path.
      hash("sha256", JSON.stringify([url, types])).slice(0, 16),
    ]),
  ]);
}
