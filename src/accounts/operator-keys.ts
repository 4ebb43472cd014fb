/**
 * Operator keys: what programs have in place of the operator token.
 *
 * A key is `iko_` and 40 characters, as API keys are (keys.ts). Its hash is keyed with the
 * operator token, as those of sessions are: another token ends all keys, and somebody who can read
 * or write the database can neither use, make nor guess one. A key may do at most what its maker
 * may do now, and ends with the maker.
 */
import { createHmac } from "node:crypto";
import { type Actor, lowerRole, type OperatorRole, owner } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { isWorking, type OperatorKeyRow } from "../store/operator-keys.ts";
import type { Store } from "../store/store.ts";
import type { EpochMs } from "../units.ts";
import { parseKey } from "./keys.ts";
import { noIssuerPeople, type SignedInPeople } from "./signed-in-people.ts";

export const operatorKeyPrefix = "iko_";
/** A use is recorded if the last record is older. */
const usedEveryMs = 60_000;

type KeyDatabase = Pick<Store, "operatorKeys" | "times">;

/** Authenticates programs. */
export class OperatorKeys {
  readonly #store: KeyDatabase;
  readonly #token: string;
  readonly #onError: (error: unknown) => void;
  readonly #people: Pick<SignedInPeople, "roleOf">;
  /** Ids of keys whose use is being recorded. */
  readonly #recording = new Set<string>();

  /** `onError`: a use could not be recorded. */
  constructor(
    store: KeyDatabase,
    token: string,
    onError: (error: unknown) => void,
    people: Pick<SignedInPeople, "roleOf"> = noIssuerPeople,
  ) {
    this.#people = people;
    this.#store = store;
    this.#token = token;
    this.#onError = onError;
  }

  /** Returns who has this key now. Throws a refusal if nobody has it. */
  async authenticate(secret: string): Promise<Actor> {
    const row =
      parseKey(secret, operatorKeyPrefix) === "ok"
        ? await this.#store.operatorKeys.find(hashOf(secret, this.#token))
        : null;
    const { atMs, nowMs } = this.#store.times();
    const role = row !== null && isWorking(row, atMs) ? await this.#roleOf(row) : null;
    if (row === null || role === null) {
      throw new Refusal("invalid_operator_token", "This operator key is unknown, has ended or has expired.");
    }
    this.#use(row, nowMs);
    return { by: `operator_key:${row.id}`, role, maker: row.by };
  }

  /** Returns what a key may do now. Null: its maker may do nothing any more. */
  async #roleOf({ role, by }: OperatorKeyRow): Promise<OperatorRole | null> {
    if (by === owner.by || by.startsWith("command_line:")) return role;
    const [, person] = /^person:(.+)$/.exec(by) ?? [];
    const makers = person === undefined ? null : await this.#people.roleOf(person);
    return makers && lowerRole(role, makers);
  }

  /** Records the use about once a minute. The caller does not wait for that. */
  #use({ id, usedMs }: OperatorKeyRow, nowMs: EpochMs): void {
    if (nowMs - (usedMs ?? 0) < usedEveryMs || this.#recording.has(id)) return;
    this.#recording.add(id);
    this.#store.operatorKeys
      .use(id, nowMs)
      .catch(this.#onError)
      .finally(() => this.#recording.delete(id));
  }
}

/** Returns the hash under which a key is stored. */
export function hashOf(secret: string, token: string): string {
  return createHmac("sha256", token).update(`operator_key ${secret}`).digest("hex");
}
