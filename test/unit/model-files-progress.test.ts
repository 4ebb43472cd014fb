/** The display of a download on a terminal and in a log. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { barLine, createProgressRenderer } from "../../src/model-files/progress.ts";

const mb = 1_000_000;

function recorder(terminal: { isTTY?: boolean; columns?: number } = {}) {
  const clock = { nowMs: 0 };
  const texts: string[] = [];
  const stream = { ...terminal, write: (text: string) => texts.push(text) };
  return { clock, texts, renderer: createProgressRenderer(stream, () => clock.nowMs) };
}

test("redraws one line on a terminal and ends it with the file", () => {
  const { clock, texts, renderer } = recorder({ isTTY: true, columns: 100 });
  for (let received = 0; received <= 98 * mb; received += mb) {
    renderer.received({ fileName: "tiny.gguf", receivedBytes: received, totalBytes: 98 * mb });
    clock.nowMs += 50;
  }
  assert.ok(texts.length < 60, "not more often than the eye follows");
  const drawn = texts.filter((text) => text !== "\n");
  assert.ok(drawn.every((text) => text.startsWith("\r") && text.endsWith("\x1b[K") && !text.includes("\n")));
  assert.match(drawn.at(-2) ?? "", /tiny\.gguf {2}█+░+ {2}9\d % {2}9\d MB of 98 MB {2}20 MB\/s {2}1 s left/);
  assert.match(drawn.at(-1) ?? "", /100 % {2}98 MB of 98 MB {2}20 MB\/s/);
  assert.equal(texts.at(-1), "\n");
});

for (const isTTY of [false, true]) {
  test(`shows hidden characters of a server's message ${isTTY ? "on a terminal" : "in a log"} as escapes`, () => {
    const { texts, renderer } = recorder({ isTTY });
    renderer.note("host\u202e: no\u001b[2J");
    assert.deepEqual(texts, [`${String.raw`host\u202e: no\u001b[2J`}\n`]);
  });
}

test("shortens the line to fit, and keeps the percentage longest", () => {
  const progress = {
    fileName: "SmolLM2-135M-Instruct.Q4_1.gguf",
    receivedBytes: 49 * mb,
    totalBytes: 98 * mb,
  };
  for (let width = 0; width <= 200; width++) {
    const line = barLine(progress, 12 * mb, width);
    assert.ok(line.length <= width);
    if (width >= 4) assert.ok(line.includes("50 %"), `${width}: ${line}`);
  }
  assert.equal(barLine(progress, 12 * mb, 5), "50 %");
  assert.equal(barLine(progress, 12 * mb, 30), "50 %  49 MB of 98 MB  12 MB/s");
  assert.match(
    barLine(progress, 12 * mb, 120),
    /^SmolLM2.*gguf {2}█{15}░{15} {2}50 % {2}49 MB of 98 MB {2}12 MB\/s {2}5 s left$/,
  );
});

test("shows neither percentage nor remaining time without a total", () => {
  assert.equal(
    barLine({ fileName: "a.gguf", receivedBytes: 5 * mb, totalBytes: undefined }, mb, 80),
    "a.gguf  5.0 MB  1.0 MB/s",
  );
});

test("shows long waits in minutes and hours", () => {
  const left = (seconds: number): string =>
    barLine({ fileName: "", receivedBytes: 0, totalBytes: seconds * mb }, mb, 200);
  assert.match(left(59), /59 s left/);
  assert.match(left(90), /1 min 30 s left/);
  assert.match(left(7260), /2 h 1 min left/);
});

test("fits a narrow terminal and leaves its last column free", () => {
  const { texts, renderer } = recorder({ isTTY: true, columns: 40 });
  renderer.received({ fileName: "SmolLM2-135M-Instruct.Q4_1.gguf", receivedBytes: mb, totalBytes: 98 * mb });
  const [text = ""] = texts;
  assert.ok(text.length - "\r\x1b[K".length <= 39, text);
});

test("writes a note on its own line", () => {
  const { texts, renderer } = recorder({ isTTY: true, columns: 80 });
  renderer.received({ fileName: "a", receivedBytes: 1, totalBytes: 2 });
  renderer.note("trying again");
  renderer.end();
  assert.deepEqual(texts.slice(1), ["\n", "trying again\n"]);
});

test("writes lines without control characters to a log: at the start, every tenth and the end", () => {
  const { texts, renderer } = recorder();
  for (let received = 0; received <= 98 * mb; received += mb / 10) {
    renderer.received({ fileName: "tiny.gguf", receivedBytes: received, totalBytes: 98 * mb });
  }
  assert.equal(texts.length, 11);
  assert.equal(texts[0], "downloading tiny.gguf: 0.0 MB of 98 MB (0 %)\n");
  assert.equal(texts.at(-1), "downloading tiny.gguf: 98 MB of 98 MB (100 %)\n");
});

test("writes a line to a log every five seconds of a slow download", () => {
  const { clock, texts, renderer } = recorder();
  for (let second = 0; second <= 60; second++) {
    renderer.received({ fileName: "tiny.gguf", receivedBytes: second * 1000, totalBytes: 98 * mb });
    clock.nowMs += 1000;
  }
  assert.equal(texts.length, 13);
});
