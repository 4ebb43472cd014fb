/**
 * The floor of `bench/ledger.ts`: the writes of holds and settlements, and nothing else, in one
 * thread of prepared statements on the same kind of file with the same settings. Reads nothing,
 * decides nothing, checks nothing, keeps its amounts in memory; a row that several operations of a
 * batch change is written once, as the ledger writes it.
 */
import type { DatabaseSync } from "node:sqlite";
import { newRequestId } from "../src/telemetry/request-record.ts";
import { accountId, keyId, nextAccount, usage } from "./ledger-file.ts";

/** Operations of one commit of the ledger. */
export interface Batch {
  holds: number;
  settlements: number;
}

export interface RawResult {
  pairs: number;
  ms: number;
}

const held = usage.promptTokens + usage.completionTokens;
const openedMs = 30_000;

function runningOf(holds: number): string | null {
  return holds === 0 ? null : JSON.stringify([["bench", holds * held, 0]]);
}

/** Writes batches of these sizes, over and over, until `ms` have passed. */
export function rawLoop(
  db: DatabaseSync,
  accounts: number,
  batches: readonly Batch[],
  ms: number,
): RawResult {
  const updateAccount = db.prepare(
    "update account set seq = ?, base_spent = ?, base_held = ?, holds = ?, running = ?, requests_tat_ms = 0, tokens_tat_ms = 0 where id = ?",
  );
  const insertHold = db.prepare(
    "insert into hold values (?, ?, ?, 'bench', ?, ?, ?, 0, 0, 0, ?, 0, 0, 0, 1, 1, 1)",
  );
  const deleteHold = db.prepare("delete from hold where account = ? and id = ?");
  const insertCharge = db.prepare(
    "insert into charge values (?, ?, ?, ?, ?, 1, 'bench', 'stop', null, 0, null, 0, ?, 0, ?, 0, 1, 1, 1, ?, ?, 0, 0, 0, ?)",
  );
  const updateKey = db.prepare(
    "update api_key set requests_tat_ms = 0, tokens_tat_ms = 0, holds = ?, running = ?, last_used_ms = ? where account = ? and id = ?",
  );
  const states = Array.from({ length: accounts }, (_, n) => {
    const row = db.prepare("select seq, base_seq, base_spent from account where id = ?").get(accountId(n));
    const id = accountId(n);
    return {
      id,
      key: keyId(n),
      seq: Number(row?.seq),
      spent: Number(row?.base_spent),
      taken: JSON.stringify([[Number(row?.base_seq), "base", held]]),
      holds: 0,
    };
  });
  const open: { account: (typeof states)[number]; id: string }[] = [];
  const changed = new Set<(typeof states)[number]>();
  let turn = 0;
  let pairs = 0;
  let nowMs = Date.now();

  const hold = () => {
    const account = states[nextAccount(turn++, accounts)];
    if (account === undefined) throw new Error("there is at least one account");
    const id = newRequestId();
    account.holds += 1;
    insertHold.run(account.id, id, account.key, nowMs, nowMs + openedMs, account.taken, usage.promptTokens);
    changed.add(account);
    open.push({ account, id });
  };
  const settle = (at: number) => {
    const ended = open[at];
    if (ended === undefined) throw new Error("no more is settled than was held");
    const { account, id } = ended;
    account.seq += 1;
    account.spent += held;
    account.holds -= 1;
    deleteHold.run(account.id, id);
    insertCharge.run(
      account.id,
      id,
      account.seq,
      nowMs,
      account.key,
      usage.promptTokens,
      usage.completionTokens,
      held,
      held,
      account.taken,
    );
    changed.add(account);
    pairs += 1;
  };

  const beganMs = performance.now();
  while (performance.now() - beganMs < ms) {
    for (const batch of batches) {
      nowMs = Date.now();
      const settlements = Math.min(batch.settlements, open.length);
      db.exec("begin immediate");
      for (let n = 0; n < settlements; n += 1) settle(n);
      open.splice(0, settlements);
      for (let n = 0; n < batch.holds; n += 1) hold();
      for (const { id, key, seq, spent, holds } of changed) {
        updateAccount.run(seq, spent, holds * held, holds, runningOf(holds), id);
        updateKey.run(holds, runningOf(holds), nowMs, id, key);
      }
      db.exec("commit");
      changed.clear();
    }
  }
  const tookMs = performance.now() - beganMs;
  db.exec("begin");
  nowMs = Date.now();
  for (let n = 0; n < open.length; n += 1) settle(n);
  for (const { id, key, seq, spent, holds } of changed) {
    updateAccount.run(seq, spent, holds * held, holds, runningOf(holds), id);
    updateKey.run(holds, runningOf(holds), nowMs, id, key);
  }
  db.exec("commit");
  return { pairs: pairs - open.length, ms: tookMs };
}
