/**
 * Loading a model with the real child process: log lines, time limits and errors. A looping chat
 * template is ended, at the start and during a single conversation.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { EngineError, type Message } from "../../src/chat/engine.ts";
import { startLlamaEngine } from "../../src/engines/llama/process/engine.ts";
import { LoadWatch, weightsMsOf } from "../../src/engines/llama/process/load-watch.ts";
import { TimeLimitExceeded, withTimeLimit } from "../../src/engines/llama/prompt/time-limit.ts";
import { OperatorError } from "../../src/errors.ts";
import {
  ask,
  asked,
  collect,
  llamaOptions,
  prepare,
  RecordedLog,
  startMiniature,
  writeMiniature,
} from "../fixtures/llama-engine.ts";
import { processEnded } from "../fixtures/processes.ts";

/** Loops for longer than anybody waits, without memory. */
const loop =
  "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
/** A start renders a few words, within this time on a busy machine too. */
const renderMs = 2000;
const plain = "{% for message in messages %}{{ message.content }}{% endfor %}";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "inkwell-load-"));
});
after(() => rm(folder, { recursive: true }));

/** The log of a start, whose processes get a signal as soon as they are there. */
class SignallingLog extends RecordedLog {
  readonly pids: number[] = [];
  readonly #signal: NodeJS.Signals;

  constructor(signal: NodeJS.Signals) {
    super();
    this.#signal = signal;
  }

  override info(fields: { engine?: number }, message: string): void {
    super.info(fields, message);
    if (message !== "loading the model" || fields.engine === undefined) return;
    this.pids.push(fields.engine);
    process.kill(fields.engine, this.#signal);
  }
}

test("logs the start of a load with file, process and limit, and its end", async () => {
  const log = new RecordedLog();
  const engine = await startMiniature({ log, loadMs: 120_000 });
  await engine.close();
  assert.match(
    log.lines[0] ?? "",
    /^info loading the model \{"modelPath":"[^"]+miniature\.gguf","engine":\d+,"limitSeconds":120\}$/,
  );
  assert.match(log.lines[1] ?? "", /^info model loaded/);
});

test("a looping chat template fails the start with an error that names file and template", async () => {
  const modelPath = join(folder, "looping.gguf");
  await writeMiniature(modelPath, loop + plain);
  const log = new RecordedLog();
  await assert.rejects(
    startLlamaEngine(llamaOptions({ modelPath, log, renderMs: 200 })),
    (error: unknown) => {
      assert.ok(error instanceof OperatorError);
      assert.match(
        error.message,
        /^The model file \S+looping\.gguf cannot be used: its chat template takes longer than 0\.2 s for a few words, so it may loop/,
      );
      return true;
    },
  );
  const [, pid] = /"engine":(\d+)/.exec(log.lines[0] ?? "") ?? [];
  await processEnded(Number(pid));
});

test("a chat template that loops over some conversations fails only those", async (t) => {
  const modelPath = join(folder, "sometimes.gguf");
  await writeMiniature(modelPath, `{% if messages | length == 7 %}${loop}{% endif %}${plain}`);
  const engine = await startMiniature({ modelPath, renderMs });
  t.after(() => engine.close());
  const { pid } = engine;
  const other = (await prepare(engine, "Something endless, please.", { account: "bert" })).generate(
    asked(200),
  );
  const answer = collect(other);
  const seven = Array.from(
    { length: 7 },
    (_, index): Message => ({
      role: index % 2 === 0 ? "user" : "assistant",
      content: "Hi",
    }),
  );
  await assert.rejects(prepare(engine, seven), (error: unknown) => {
    assert.ok(error instanceof EngineError && error.failure === "failed");
    assert.match(error.message, /the chat template takes longer than 2 s over this conversation/);
    return true;
  });
  assert.equal((await answer).usage.completionTokens, 200);
  assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
  assert.equal(engine.pid, pid);
});

test("kills a process that does not read the weights in time, and names the limit", async () => {
  const log = new RecordedLog();
  // Reading the weights takes longer: the library tests its binaries in a process of their own
  // before.
  await assert.rejects(startLlamaEngine(llamaOptions({ log, loadMs: 4 })), (error: unknown) => {
    assert.ok(error instanceof OperatorError);
    assert.match(
      error.message,
      /miniature\.gguf cannot be used: reading its weights took longer than 0\.004 s/,
    );
    assert.match(error.message, /load_seconds/);
    return true;
  });
  const [, pid] = /"engine":(\d+)/.exec(log.lines[0] ?? "") ?? [];
  await processEnded(Number(pid));
});

test("the load limit is five minutes plus one for each GiB", () => {
  assert.equal(weightsMsOf(0), 300_000);
  assert.equal(weightsMsOf(40 * 2 ** 30), 2_700_000);
});

function ended(reason: string): string {
  const watch = new LoadWatch({
    modelPath: "/models/a.gguf",
    engine: 1,
    weightsMs: 1000,
    log: new RecordedLog(),
    expired: () => {},
  });
  watch.enter("weights");
  return watch.ended(reason).message;
}

test("blames memory for an early end only with evidence", () => {
  const prefix = "The model file /models/a.gguf cannot be used: its process ended while reading its weights";
  const memory = "the machine may have too little memory for it";
  for (const reason of [
    "signal SIGKILL",
    "exit code 137",
    "signal SIGABRT; terminate called after throwing an instance of 'std::bad_alloc'",
    "exit code 1; ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9",
  ]) {
    assert.equal(ended(reason), `${prefix} (${reason}); ${memory}.`);
  }
  for (const reason of [
    "signal SIGSEGV",
    "exit code 127; symbol lookup error: libllama.so: undefined symbol: llama_init",
  ]) {
    assert.ok(ended(reason).startsWith(`${prefix} (${reason}); llama.cpp crashed: `), reason);
    assert.ok(!ended(reason).includes("memory"), reason);
    assert.match(ended(reason), /LD_LIBRARY_PATH/);
  }
  assert.equal(ended("exit code 1"), `${prefix} (exit code 1).`);
});

test("a load that is killed reports the signal and leaves no process", async () => {
  const log = new SignallingLog("SIGSEGV");
  await assert.rejects(startLlamaEngine(llamaOptions({ log })), /signal SIGSEGV.*llama\.cpp crashed/);
  for (const pid of log.pids) await processEnded(pid);
});

test("a time limit ends a loop, returns results and passes errors on", () => {
  assert.throws(
    () =>
      withTimeLimit(50, () => {
        for (;;);
      }),
    TimeLimitExceeded,
  );
  assert.equal(
    withTimeLimit(1000, () => 7),
    7,
  );
  const failure = new Error("no");
  assert.throws(
    () =>
      withTimeLimit(1000, () => {
        throw failure;
      }),
    (error) => error === failure,
  );
});
