/** The accounts whose events an endpoint gets take turns. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EndpointSender } from "../../src/events/endpoint-sender.ts";
import type { ClaimedEvent, EventStore } from "../../src/store/events.ts";
import { until } from "../fixtures/until.ts";

/** The part of a store that a sender uses, with so many events of each account. */
function storeOf(counts: Readonly<Record<string, number>>) {
  const left = new Map(Object.entries(counts));
  const accounts = [...left.keys()];
  const numberOf = (account: string) => accounts.indexOf(account);
  const claimed = (number: number): ClaimedEvent => ({
    id: `${number}`,
    number,
    account: accounts[number] ?? null,
    seq: null,
    atMs: 0,
    type: "account.opened",
    data: "{}",
    attempts: 0,
  });
  const store: Pick<EventStore, "firsts" | "claim" | "record"> = {
    firsts: async (_, from, limit) =>
      accounts
        .filter((account) => account >= from && (left.get(account) ?? 0) > 0)
        .slice(0, limit)
        .map((account) => ({ account, number: numberOf(account), dueMs: 0 })),
    claim: async (_, numbers) => numbers.map(claimed),
    record: async (_, attempts) => {
      for (const { number } of attempts) {
        const account = accounts[number] ?? "";
        left.set(account, (left.get(account) ?? 0) - 1);
      }
    },
  };
  return { store, rest: () => [...left.values()].reduce((sum, count) => sum + count, 0) };
}

for (const slots of [1, 2, 8]) {
  test(`the first events of all accounts come before the last of one, ${slots} at a time`, async () => {
    const { store, rest } = storeOf({ a: 5, b: 3, c: 1 });
    const sent: string[] = [];
    const sender = new EndpointSender({
      name: "crm",
      receiver: {
        send: async ({ account }) => {
          sent.push(account ?? "");
          return { kind: "delivered", status: 200, text: "", retryAfterMs: 0 };
        },
        close: async () => {},
      },
      events: store,
      nowMs: () => 0,
      claimMs: 1000,
      signal: new AbortController().signal,
      slots,
      onAttempt: () => {},
      onDead: () => {},
    });
    sender.start();
    await until("all are sent", () => rest() === 0);
    await sender.stop();
    assert.deepEqual(sent.slice(0, 3).toSorted(), ["a", "b", "c"]);
    assert.equal(sent.join(""), "abcababaa");
  });
}
