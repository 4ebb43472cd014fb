/** What a terminal shows: tables that fit it, and a line while a command works. */
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { type Column, table } from "../../src/cli/format.ts";
import { Spinner } from "../../src/cli/spinner.ts";
import { stopTime } from "../fixtures/stopped-time.ts";

interface Key {
  id: string;
  name: string;
  left: string;
  models: string;
}

const columns: Column<Key>[] = [
  { head: "ID", cell: ({ id }) => id },
  { head: "NAME", cell: ({ name }) => name },
  { head: "LEFT", isNumber: true, cell: ({ left }) => left },
  { head: "MODELS", cell: ({ models }) => models },
];
const keys: Key[] = [
  { id: "key_0123456789abcdef", name: "notebook of ada", left: "5", models: "small, large and huge" },
  { id: "key_1", name: "nightly", left: "12,000", models: "-" },
];

function linesOf(width?: number, hasHead = true): string[] {
  return table(keys, columns, width === undefined ? { hasHead } : { width, hasHead }).split("\n");
}

test("a table has one line for each row if the output is no terminal, or a wide one", () => {
  const whole = [
    "ID                    NAME               LEFT  MODELS",
    "key_0123456789abcdef  notebook of ada       5  small, large and huge",
    "key_1                 nightly          12,000  -",
  ];
  assert.deepEqual(linesOf(), whole);
  assert.deepEqual(linesOf(68), whole);
  assert.deepEqual(linesOf(68, false), whole.slice(1));
});

test("columns that do not fit are below their row, whole, and rows without such values have no line", () => {
  const narrow = [
    "ID                    NAME               LEFT",
    "    MODELS",
    "key_0123456789abcdef  notebook of ada       5",
    "    small, large and huge",
    "key_1                 nightly          12,000",
  ];
  assert.deepEqual(linesOf(67), narrow);
  assert.deepEqual(linesOf(67, false), narrow.slice(2));
});

test("longer text wraps between words, and an id stays whole", () => {
  assert.deepEqual(linesOf(16), [
    "ID",
    "    NAME",
    "      LEFT",
    "    MODELS",
    "key_0123456789abcdef",
    "    notebook of",
    "    ada",
    "         5",
    "    small, large",
    "    and huge",
    "key_1",
    "    nightly",
    "    12,000",
  ]);
});

test("the last column wraps in its place if it has room", () => {
  const prose = "one two three four five six seven eight nine";
  const rows = [{ id: "key_1", name: "a", left: "1", models: prose }];
  assert.deepEqual(table(rows, columns, { width: 60 }).split("\n"), [
    "ID     NAME  LEFT  MODELS",
    "key_1  a        1  one two three four five six seven eight",
    "                   nine",
  ]);
});

/** A terminal of 40 columns that keeps what is written. */
function terminal(isTTY: boolean) {
  const written: string[] = [];
  return { written, stream: { isTTY, columns: 40, write: (text: string) => written.push(text) } };
}

test("after a second a terminal shows that a command works, until it writes or ends", async () => {
  using time = stopTime();
  mock.timers.enable({ apis: ["setInterval"] });
  using _timers = { [Symbol.dispose]: () => mock.timers.reset() };
  const { written, stream } = terminal(true);
  const spinner = new Spinner(stream);
  let done = 3;
  const work = Promise.withResolvers<string>();
  const waiting = spinner.during(
    () => `${done} of 40 rows and a text that is too long for the terminal`,
    () => spinner.during(assert.fail, () => work.promise),
  );
  const pass = (ms: number) => {
    time.advance(ms);
    mock.timers.tick(100);
    return written.splice(0);
  };
  assert.deepEqual(pass(900), []);
  assert.deepEqual(pass(100), ["\r⠋ 3 of 40 rows and a text that is too l\x1b[K"]);
  done = 4;
  assert.deepEqual(pass(100), ["\r⠙ 4 of 40 rows and a text that is too l\x1b[K"]);
  spinner.clear();
  spinner.clear();
  assert.deepEqual(written.splice(0), ["\r\x1b[K"]);
  assert.equal(pass(100).length, 1);
  work.resolve("sound");
  assert.equal(await waiting, "sound");
  assert.deepEqual(written.splice(0), ["\r\x1b[K"]);
  assert.deepEqual(pass(5_000), [], "the work has ended");
});

test("elsewhere nothing is written", async () => {
  const { written, stream } = terminal(false);
  assert.equal(await new Spinner(stream).during(assert.fail, async () => 1), 1);
  assert.deepEqual(written, []);
});
