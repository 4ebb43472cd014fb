/** The histories of docs/time-line.html: their addresses, and what the examples show. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { examples } from "../../tools/time-line/examples.ts";
import { type Event, HashError, hashOf, historyIn, named, without } from "../../tools/time-line/history.ts";
import { type Played, play } from "../../tools/time-line/play.ts";
import { heldOfClosed } from "../../tools/time-line/strips.ts";
import { sentenceOf } from "../../tools/time-line/words.ts";

/** Plays an example, and returns its refusals by event. */
function played(title: string): { result: Played; refusals: Record<string, string> } {
  const example = examples.find((each) => each.title === title);
  assert.ok(example !== undefined, title);
  const result = play(named(historyIn(example.hash).events));
  const refused = result.commits.filter(
    ({ outcome }) => "reason" in outcome || /differs|too_much/.test(outcome.kind),
  );
  const refusals = refused.map(({ event, outcome }) => [
    event,
    "reason" in outcome ? outcome.reason : outcome.kind,
  ]);
  return { result, refusals: Object.fromEntries(refusals) };
}

test("the address of an example is the address of its history, and each commit has words", () => {
  for (const { hash } of examples) {
    assert.equal(hashOf(historyIn(hash)), hash);
    for (const commit of play(named(historyIn(hash).events)).commits) {
      const { asked, answer } = sentenceOf(commit);
      assert.doesNotMatch(`${asked} ${answer}`, /undefined|NaN/);
    }
  }
});

test("addresses that are no history are refused with the reason", () => {
  for (const [hash, reason] of [
    [
      "request=10:07,1:00",
      /“request=10:07,1:00” cannot be read: times are quarters of an hour from 0:00 to 47:45/,
    ],
    ["request=47:00,2:00", /times are quarters of an hour from 0:15 to 1:00/],
    ["refund=3:00,5,1", /A refund names payment 1, and the history has 0/],
    ["plan=3:00,huge,now", /choices are small, large, daily/],
    ["payment=3:00,0", /numbers are whole, from 1 to 500/],
    ["crash=3:00,4:00", /it has too many values/],
    ["constructor=3:00", /events are request, crash, plan, payment, refund, promotion/],
    ["crash=3:00&show=crash-2", /choices are crash-1/],
    [`${"crash=3:00&".repeat(50)}at=0:00`, /more than 40 events/],
  ] as const) {
    assert.throws(
      () => historyIn(hash),
      (error) => error instanceof HashError && reason.test(error.message),
      hash,
    );
  }
});

test("a payment takes its refunds along, and the others keep theirs", () => {
  const payment = { kind: "payment", at: 0, credits: 5 } as const;
  const refund = (number: number): Event => ({ kind: "refund", at: 9, credits: 5, payment: number });
  const events = [payment, payment, refund(1), refund(2)];
  assert.deepEqual(without(events, 0), [payment, refund(1)]);
  assert.deepEqual(without(events, 2), [payment, payment, refund(2)]);
});

test("the examples show what they say", () => {
  const border = played("A window border inside an answer").result;
  const charge = border.charges.find(({ id }) => id === "request-2");
  assert.deepEqual(
    charge?.paid.map(({ bucket }) => bucket),
    ["base", "base"],
  );
  assert.ok(heldOfClosed(border.samples[21] ?? assert.fail()) > 0);

  const bought = played("Overage, then purchased credits").result;
  const paid = bought.charges.find(({ id }) => id === "request-2")?.paid ?? [];
  assert.deepEqual([...new Set(paid.map(({ bucket }) => bucket))], ["base", "overage", "additional"]);
  assert.ok(bought.charges.every(({ shortfallMicro }) => shortfallMicro === 0));

  const plans = played("A plan change in the middle of an answer");
  assert.deepEqual(plans.refusals, { "plan-3": "window_differs" });
  assert.deepEqual(
    [13, 46, 61, 110, 112].map((quarter) => plans.result.samples[quarter]?.view.plan),
    ["large", "large", "small", "small", "daily"],
  );

  const crash = played("A crash in the middle of an answer").result;
  assert.equal(crash.charges[0]?.ending, "expired");

  assert.deepEqual(played("A refund of spent credits").refusals, { "refund-1": "too_much" });
  assert.deepEqual(played("Two answers that want the same credits").refusals, {
    "request-3": "credits_reserved",
    "request-4": "insufficient_credits",
  });
});
