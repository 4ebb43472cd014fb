/** Makes, lists and ends operator keys. Keys make no keys: none outlives the right to make it. */
import { hash } from "node:crypto";
import { type Actor, hasRole, type OperatorRole } from "../actors.ts";
import { Refusal } from "../errors.ts";
import type { TellAccess } from "../ledger/events.ts";
import { newIdNeeded } from "../ledger/refusals.ts";
import { limits } from "../limits/limits.ts";
import { changeLogRow } from "../store/change-log.ts";
import { isWorking, type OperatorKeyRow } from "../store/operator-keys.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { isoTime } from "./json-objects.ts";
import { mintKey } from "./keys.ts";
import { hashOf, operatorKeyPrefix } from "./operator-keys.ts";
import { invalidValue, requireFresh } from "./refusals.ts";

/** A key without an expiry of its own ends after this time. */
const defaultLifeMs = 90 * 86_400_000;
const lifeMsMax = 366 * 86_400_000;

interface OperatorKeyOptions {
  name: string;
  role: OperatorRole;
  expiresMs?: EpochMs | undefined;
}

/** A key, and its secret unless it was shown before. */
export interface ShownOperatorKey {
  key: string | null;
  row: OperatorKeyRow;
}

interface ActionDependencies {
  store: Pick<Store, "operatorKeys" | "times">;
  actor: Actor;
  /** The operator token. */
  token(): Promise<string>;
  /** Default: nobody hears of it. */
  tell?: TellAccess | undefined;
}

/** Makes, lists and ends keys. Throws refusals, and then nothing has changed. */
export class OperatorKeyActions {
  readonly #deps: ActionDependencies;

  constructor(dependencies: ActionDependencies) {
    this.#deps = dependencies;
  }

  /** Makes one key for each operation id. A repetition returns its row without the secret. */
  async make(operation: string, { name, role, expiresMs }: OperatorKeyOptions): Promise<ShownOperatorKey> {
    const { store, actor } = this.#deps;
    if (actor.by.startsWith("operator_key:")) {
      throw new Refusal(
        "not_permitted",
        "An operator key makes no operator keys. Use the operator token or a session.",
      );
    }
    if (!hasRole(actor.role, role))
      throw invalidValue("role", `role must be at most ${actor.role}, your own role.`);
    // Such a key may refund, which needs a fresh sign-in.
    if (hasRole(role, "operator")) requireFresh(actor);
    const { nowMs, atMs } = store.times();
    const endMs = expiresMs ?? atMs + defaultLifeMs;
    if (endMs <= atMs || endMs - atMs > lifeMsMax) {
      throw invalidValue("expires_at", "expires_at must be in the future, and at most 366 days away.");
    }
    const key = mintKey(operatorKeyPrefix);
    const { by } = actor;
    const id = `opkey_${hash("sha256", `${by}\n${operation}`, "hex").slice(0, 16)}`;
    const row: OperatorKeyRow = {
      id,
      name,
      role,
      by,
      hash: hashOf(key, await this.#deps.token()),
      lastFour: key.slice(-4),
      createdMs: nowMs,
      expiresMs: endMs,
      usedMs: null,
      endedMs: null,
    };
    await this.#requireRoom(id);
    const after = { name, role, expires_at: isoTime(endMs) };
    const change = { id: `${id} made`, kind: "operator_key", by, subject: id, atMs } as const;
    if (await store.operatorKeys.add(row, changeLogRow({ ...change, before: null, after }))) {
      try {
        // Others may have been made at the same time.
        await this.#requireRoom(id);
      } catch (error) {
        await this.end(id);
        throw error;
      }
      await this.#deps.tell?.("operator.key_created", { key: id, name, role, by }, id);
      return { key, row };
    }
    const known = (await this.#all()).find((each) => each.id === id);
    const isAsAsked =
      known?.name === name && known.role === role && (expiresMs ?? known.expiresMs) === known.expiresMs;
    if (known !== undefined && isAsAsked) return { key: null, row: known };
    throw new Refusal(
      "operation_differs",
      `Operation "${operation}" made another operator key before. ${newIdNeeded}`,
      { param: "operation_id" },
    );
  }

  /** Lists the keys that the actor may end: those of their own, and an owner all of them. */
  async list(): Promise<OperatorKeyRow[]> {
    const { by, role } = this.#deps.actor;
    return (await this.#all()).filter((row) => role === "owner" || row.by === by);
  }

  /** Ends a key for good. A repetition changes nothing. */
  async end(id: string): Promise<OperatorKeyRow> {
    const { store, actor } = this.#deps;
    const row = (await this.list()).find((each) => each.id === id);
    if (row === undefined) {
      throw new Refusal("key_not_found", `There is no operator key "${id}" that you may end.`);
    }
    const { nowMs, atMs } = store.times();
    const { name, role } = row;
    const change = { id: `${id} ended`, kind: "operator_key", by: actor.by, subject: id, atMs } as const;
    const before = { name, role };
    const isEnded = await store.operatorKeys.end(id, nowMs, changeLogRow({ ...change, before, after: null }));
    return isEnded ? { ...row, endedMs: nowMs } : ((await this.#all()).find((each) => each.id === id) ?? row);
  }

  /** Refuses a key beyond the most that work. */
  async #requireRoom(id: string): Promise<void> {
    const { store, actor } = this.#deps;
    const { atMs } = store.times();
    const others = (await this.#all()).filter((row) => row.by === actor.by && row.id !== id);
    const { most } = limits.operatorKeys;
    if (others.filter((row) => isWorking(row, atMs)).length < most) return;
    throw new Refusal(
      "too_many_keys",
      `You have ${most} operator keys that work, which is the most. End one of them first.`,
    );
  }

  async #all(): Promise<OperatorKeyRow[]> {
    return await this.#deps.store.operatorKeys.list();
  }
}
