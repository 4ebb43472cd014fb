/** Circuit breakers of one server: whose failures count for whom. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { failuresMax, openMs } from "../../src/engines/upstream/circuit.ts";
import { ServerCircuit } from "../../src/engines/upstream/server-circuit.ts";

const ofAccount = { isOfAll: false, inAnswer: false };
const ofAll = { isOfAll: true, inAnswer: false };

/** Lets a request of the account fail. Returns for whom that opens the circuit. */
function fail(circuit: ServerCircuit, account: string, nowMs = 0, how = ofAccount) {
  const attempt = circuit.begin(account, nowMs, null);
  const opened = circuit.failed(nowMs, attempt, how);
  circuit.ended(attempt);
  return opened;
}

function failOften(circuit: ServerCircuit, account: string, nowMs = 0) {
  return Array.from({ length: failuresMax }, () => fail(circuit, account, nowMs));
}

function succeed(circuit: ServerCircuit, account: string, nowMs = 0): void {
  const attempt = circuit.begin(account, nowMs, null);
  circuit.answered(account, nowMs);
  circuit.completed(account, nowMs);
  circuit.ended(attempt);
}

describe("failed answers", () => {
  test("pause the server for their account after five in a row, and for nobody else", () => {
    const circuit = new ServerCircuit();
    assert.deepEqual(failOften(circuit, "bad"), [null, null, null, null, "account"]);
    assert.equal(circuit.admits("bad", 0), false);
    assert.equal(circuit.openUntilMsFor("bad"), openMs);
    assert.equal(circuit.admits("good", 0), true);
    assert.equal(circuit.isOpen(0), false);
    assert.equal(circuit.pausedAccounts, 1);
  });

  test("are counted anew after an answer of the same account", () => {
    const circuit = new ServerCircuit();
    for (let n = 0; n < 3; n += 1) {
      for (let m = 1; m < failuresMax; m += 1) assert.equal(fail(circuit, "bad"), null);
      succeed(circuit, "bad");
    }
    assert.equal(circuit.pausedAccounts, 0);
  });

  test("pause the server for all when two accounts are paused", () => {
    const circuit = new ServerCircuit();
    failOften(circuit, "one");
    assert.deepEqual(failOften(circuit, "two").at(-1), "all");
    assert.equal(circuit.isOpen(0), true);
    assert.equal(circuit.admits("good", 0), false);
    assert.equal(circuit.admits("good", openMs), true);
  });

  test("do not, if an answer was whole between the pauses", () => {
    const circuit = new ServerCircuit();
    failOften(circuit, "one");
    succeed(circuit, "good");
    assert.deepEqual(failOften(circuit, "two").at(-1), "account");
    assert.equal(circuit.admits("good", 0), true);
  });

  test("do not for ten minutes after others had answers, also if the account has one meanwhile", () => {
    const circuit = new ServerCircuit();
    for (const account of ["one", "two"]) failOften(circuit, account);
    assert.equal(circuit.isOpen(0), true);
    succeed(circuit, "good", openMs);
    for (const account of ["one", "two"]) succeed(circuit, account, 2 * openMs);
    for (const account of ["one", "two"])
      assert.equal(failOften(circuit, account, 2 * openMs).at(-1), "account");
    assert.equal(circuit.admits("good", 2 * openMs), true);
    const laterMs = 700_000;
    for (const account of ["one", "two"]) succeed(circuit, account, laterMs);
    assert.equal(failOften(circuit, "one", laterMs).at(-1), "account");
    assert.equal(failOften(circuit, "two", laterMs).at(-1), "all");
  });

  test("do not by failed trials of paused accounts", () => {
    const circuit = new ServerCircuit();
    failOften(circuit, "one");
    failOften(circuit, "two");
    const trial = circuit.begin("good", openMs, null);
    circuit.answered("good", openMs);
    assert.equal(fail(circuit, "one", openMs), "account");
    assert.equal(fail(circuit, "two", openMs), "account");
    assert.equal(circuit.admits("other", openMs), true);
    circuit.ended(trial);
  });

  test("forgets the oldest of too many accounts", () => {
    const circuit = new ServerCircuit();
    failOften(circuit, "bad");
    for (let n = 0; n < 10_000; n += 1) fail(circuit, `account-${n}`);
    assert.equal(circuit.admits("bad", 0), true);
  });
});

test("missing answers count for all, whoever asks", () => {
  const circuit = new ServerCircuit();
  const opened = ["a", "b", "a", "c", "a"].map((account) => fail(circuit, account, 0, ofAll));
  assert.deepEqual(opened, [null, null, null, null, "all"]);
  assert.equal(circuit.admits("good", 0), false);
});

describe("the trial of an open circuit", () => {
  function openForAll() {
    const circuit = new ServerCircuit();
    failOften(circuit, "one");
    failOften(circuit, "two");
    return circuit;
  }

  test("is open to an account that did not fail, also while a paused account tries", () => {
    const circuit = openForAll();
    const trying = circuit.begin("one", openMs, null);
    assert.equal(circuit.admits("one", openMs), false, "one trial at a time");
    assert.equal(circuit.admits("good", openMs), true);
    circuit.begin("good", openMs, null);
    assert.equal(circuit.admits("other", openMs), false, "one trial at a time");
    assert.equal(circuit.failed(openMs, trying, ofAccount), "account");
  });

  test("is not decided by the failure of a paused account", () => {
    const circuit = openForAll();
    assert.equal(fail(circuit, "one", openMs), "account");
    assert.equal(circuit.admits("one", openMs), false);
    assert.equal(circuit.admits("good", openMs), true, "the pause of the others is not prolonged");
    assert.equal(fail(circuit, "good", openMs), "all");
    assert.equal(circuit.admits("other", 2 * openMs), false, "and now it is, for longer");
  });

  test("succeeds for all, whoever succeeds", () => {
    const circuit = openForAll();
    succeed(circuit, "one", openMs);
    assert.equal(circuit.openUntilMs, null);
    assert.equal(circuit.admits("good", openMs), true);
    assert.equal(circuit.pausedAccounts, 1, "the other one is still to try for itself");
  });

  test("stays open after a trial without a result", () => {
    const circuit = openForAll();
    circuit.ended(circuit.begin("good", openMs, null));
    assert.equal(circuit.admits("good", openMs), true);
    assert.notEqual(circuit.openUntilMs, null);
  });
});

test("a reset forgets all failures", () => {
  const circuit = new ServerCircuit();
  failOften(circuit, "one");
  circuit.openFor(0, 300_000);
  circuit.reset();
  assert.deepEqual([circuit.isOpen(0), circuit.pausedAccounts, circuit.admits("one", 0)], [false, 0, true]);
  assert.equal(circuit.hasFailures, false);
});
