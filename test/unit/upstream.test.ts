/**
 * The parts of the upstream engine that need no server: what is asked, what is estimated, what may
 * be logged.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { Message, Reasoning, Sampling } from "../../src/chat/engine.ts";
import { AnswerText } from "../../src/engines/upstream/answer-text.ts";
import { Circuit, failuresMax, openMs, openMsMax } from "../../src/engines/upstream/circuit.ts";
import { type DialectName, dialectOf, dialects, requestBody } from "../../src/engines/upstream/dialects.ts";
import { failureOfStatus, redact } from "../../src/engines/upstream/failure.ts";

function bodyOf(
  dialect: DialectName,
  sampling: Partial<Sampling> = {},
  reasoning: Reasoning | null = null,
  user: string | null = null,
): Record<string, unknown> {
  const messages: Message[] = [{ role: "user", content: "Hi" }];
  const request = {
    accountId: "ada",
    model: "m",
    messages,
    maxTokens: 7,
    sampling: { stop: [], ...sampling },
    user,
    reasoning,
    sendStop: dialectOf(dialect).sendsStop,
  };
  return JSON.parse(requestBody(dialectOf(dialect), request));
}

describe("request fields by dialect", () => {
  test("the token limit", () => {
    for (const dialect of dialects) {
      const name = dialect === "openai" ? "max_completion_tokens" : "max_tokens";
      assert.equal(bodyOf(dialect)[name], 7, dialect);
    }
  });

  test("always requests usage, with each event if the server supports it", () => {
    for (const dialect of dialects) {
      const body = bodyOf(dialect);
      assert.equal(body.stream, true);
      const along = dialect === "vllm" || dialect === "sglang" ? { continuous_usage_stats: true } : {};
      assert.deepEqual(body.stream_options, { include_usage: true, ...along });
      assert.equal(body.timings_per_token, dialect === "llama-server" ? true : undefined);
    }
  });

  test("sends top_k if the server supports it, and turns it off for 0", () => {
    const knowing = ["compatible", "vllm", "sglang", "llama-server"];
    for (const dialect of dialects) {
      const isKnown = knowing.includes(dialect);
      assert.equal(bodyOf(dialect, { topK: 5 }).top_k, isKnown ? 5 : undefined, dialect);
      const off = dialect === "vllm" || dialect === "sglang" ? -1 : 0;
      assert.equal(bodyOf(dialect, { topK: 0 }).top_k, isKnown ? off : undefined, dialect);
    }
  });

  test("sends stop sequences only to servers that lose no text, or that would continue and charge", () => {
    for (const dialect of dialects) {
      const isSent = dialect === "openai" || dialect === "ollama";
      assert.deepEqual(bodyOf(dialect, { stop: ["END"] }).stop, isSent ? ["END"] : undefined, dialect);
      assert.equal(bodyOf(dialect).stop, undefined);
    }
  });

  test("sends a tiny temperature as 0, because servers divide by it", () => {
    for (const dialect of dialects) {
      assert.equal(bodyOf(dialect, { temperature: 1e-40 }).temperature, 0, dialect);
      assert.equal(bodyOf(dialect, { temperature: 0.01 }).temperature, 0.01, dialect);
    }
  });

  test("sends a penalty of 0, because the server may have another default", () => {
    const body = bodyOf("compatible", { presencePenalty: 0, frequencyPenalty: 0 });
    assert.deepEqual([body.presence_penalty, body.frequency_penalty], [0, 0]);
  });

  test("sends what the caller sent, although the server may refuse it", () => {
    const user = "u".repeat(65);
    for (const dialect of dialects) {
      const sampling = { presencePenalty: 5, frequencyPenalty: -1e300, logprobs: true, topLogprobs: 20 };
      const body = bodyOf(dialect, sampling, null, user);
      assert.deepEqual([body.presence_penalty, body.frequency_penalty], [5, -1e300], dialect);
      assert.deepEqual([body.logprobs, body.top_logprobs, body.user], [true, 20, user], dialect);
      const refused = bodyOf(dialect, { logprobs: false, topLogprobs: 3 });
      assert.deepEqual([refused.logprobs, refused.top_logprobs], [false, 3], dialect);
    }
  });

  test("sends no number of alternatives if there is none, except to llama-server, which sends 20", () => {
    for (const dialect of dialects) {
      const least = dialect === "llama-server" ? 1 : undefined;
      assert.equal(bodyOf(dialect, { logprobs: true }).top_logprobs, least, dialect);
      const none = bodyOf(dialect, { logprobs: true, topLogprobs: 0 }).top_logprobs;
      assert.equal(none, least ?? 0, dialect);
      assert.ok(!("top_logprobs" in bodyOf(dialect)));
    }
  });

  test("sends a seed as it is, and folds it only if the server takes fewer bits", () => {
    const seed = (dialect: DialectName, value: number) => bodyOf(dialect, { seed: value }).seed;
    for (const dialect of dialects) {
      for (const small of [0, 7, 2 ** 31 - 1]) assert.equal(seed(dialect, small), small, dialect);
    }
    for (const dialect of ["compatible", "openai", "vllm", "ollama"] as const) {
      for (const whole of [-1, 2 ** 40, -(2 ** 53), 2 ** 63 - 1024])
        assert.equal(seed(dialect, whole), whole, dialect);
    }
    assert.equal(seed("llama-server", 2 ** 32 - 2), 2 ** 32 - 2);
    assert.equal(seed("sglang", -(2 ** 31)), -(2 ** 31));
    const ranges = { "llama-server": [0, 2 ** 32 - 2], sglang: [-(2 ** 31), 2 ** 31 - 1] } as const;
    const tooLarge = [2 ** 63, -(2 ** 63), 1e300, -1e300, Number.MAX_VALUE];
    for (const dialect of dialects) {
      const isNarrow = dialect === "llama-server" || dialect === "sglang";
      const [min, max] = isNarrow ? ranges[dialect] : [-(2 ** 63) + 1024, 2 ** 63 - 1024];
      for (const value of isNarrow ? [2 ** 32 - 1, 2 ** 40, -(2 ** 40), ...tooLarge] : tooLarge) {
        const folded = seed(dialect, value);
        assert.ok(typeof folded === "number" && folded >= min && folded <= max, `${dialect}: ${folded}`);
        assert.equal(seed(dialect, value), folded, "the same one each time");
      }
    }
    assert.notEqual(seed("llama-server", -1), seed("llama-server", -2));
  });

  test("sends greedy sampling as temperature 0, and the other values beside it", () => {
    const body = bodyOf("vllm", { topP: 0, temperature: 0.5, topK: 40 });
    assert.deepEqual([body.temperature, body.top_p, body.top_k], [0, undefined, 40]);
    assert.equal(bodyOf("vllm", { topK: 1e15 }).top_k, 2 ** 31 - 1, "more than any vocabulary has");
  });

  test("leaves unset values to the server", () => {
    const body = bodyOf("compatible");
    assert.deepEqual(Object.keys(body), ["model", "messages", "stream", "stream_options", "max_tokens"]);
  });

  test("separates the prompt caches of accounts at vLLM and SGLang without their names", () => {
    const salted = dialects.filter((dialect) => "cache_salt" in bodyOf(dialect));
    assert.deepEqual(salted, ["vllm", "sglang"]);
    const { cache_salt: salt } = bodyOf("vllm");
    assert.ok(typeof salt === "string" && salt.length > 20 && !salt.includes("ada"));
  });

  test("sends reasoning only if the model is configured to think", () => {
    const of = (dialect: DialectName, reasoning: Reasoning | null) => {
      const { reasoning_effort: effort, chat_template_kwargs: template } = bodyOf(dialect, {}, reasoning);
      return { ...(effort === undefined ? {} : { effort }), ...(template === undefined ? {} : { template }) };
    };
    for (const dialect of dialects) {
      assert.deepEqual(of(dialect, null), {});
    }
    assert.deepEqual(of("openai", { effort: "high" }), { effort: "high" });
    assert.deepEqual(of("openai", { maxTokens: 0 }), { effort: "low" });
    assert.deepEqual(of("openai", { maxTokens: 2048 }), { effort: "medium" });
    assert.deepEqual(of("openai", { effort: "high", maxTokens: 5 }), { effort: "high" });
    for (const effort of ["none", "minimal", "low", "xhigh", "max", "immense"])
      assert.deepEqual(
        of("openai", { effort, maxTokens: 5 }),
        { effort },
        "it is sent as the caller sent it",
      );
    assert.deepEqual(of("openai", { effort: "high", maxTokens: 0 }), { effort: "low" });
    assert.deepEqual(of("ollama", { maxTokens: 0 }), { effort: "none" });
    assert.deepEqual(of("vllm", { maxTokens: 0 }), { template: { enable_thinking: false, thinking: false } });
    assert.deepEqual(of("sglang", { maxTokens: 512 }), { effort: "low" });
    assert.deepEqual(of("llama-server", { effort: "low" }), { template: { reasoning_effort: "low" } });
    assert.deepEqual(of("llama-server", { effort: "none" }), { template: { enable_thinking: false } });
  });
});

describe("logged messages of upstreams", () => {
  const messages: Message[] = [
    { role: "user", content: "tell me of the  sea and all its creatures" },
    { role: "user", content: "ink" },
  ];
  const unlogged = { key: "topsecret123", user: "ada@example.com", messages };
  test("contain no key", () => {
    const said = redact("bad key topsecret123 or sk-abcdefgh12345 or Bearer xyz", unlogged);
    assert.equal(said, "bad key [key] or [key] or Bearer [key]");
  });
  test("do not contain the caller's user", () => {
    assert.equal(redact("no ada@example.com here", unlogged), "no [user] here");
    assert.equal(redact("no such user", { ...unlogged, user: "u" }), "no such user");
  });
  test("contain nothing of the conversation", () => {
    assert.match(redact('input "me of the sea and all its cre" is bad', unlogged), /quote the request/);
    assert.equal(redact("drinking is bad", unlogged), "drinking is bad");
  });
  describe("contain no escaped conversation", () => {
    const user = "zo\u00eb\\smith";
    const quoted = 'gr\u00fc\u00df "Ad\u00e8le"\n\tan der C:\\new\\table/K\u00fcche \u{1f58b}';
    const packed = { key: null, user, messages: [{ role: "user" as const, content: quoted }] };
    const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
    const ascii = (value: unknown) => JSON.stringify(value).replace(/[\u0080-\uffff]/g, escaped);
    const ways: [name: string, write: (text: string) => string][] = [
      ["as JSON", JSON.stringify],
      ["as JSON of ASCII alone", ascii],
      ["with every character escaped", (text) => text.replace(/./gs, escaped)],
      [
        "with capital digits",
        (text) => ascii(text).replace(/u00[a-f0-9]{2}/g, (code) => `u${code.slice(1).toUpperCase()}`),
      ],
      ["with escaped slashes", (text) => ascii(text).replaceAll("/", "\\/")],
      ["as JSON in JSON", (text) => JSON.stringify({ detail: ascii(text) })],
      ["as JSON in JSON in JSON", (text) => ascii(JSON.stringify({ detail: ascii(text) }))],
    ];
    for (const [name, write] of ways) {
      test(name, () => {
        assert.match(redact(`bad input: ${write(quoted)}`, packed), /quote the request/);
        const said = redact(`unknown: ${write(user)}`, packed);
        assert.match(said, /^unknown: .*\[user\]/);
        assert.ok(!said.includes("zo") && !said.includes("smith"), said);
      });
    }
    test("keep the upstream's own words", () => {
      const said = '{"error":"no model \\"big\\"\\nin \\u0022/models\\u0022"}';
      assert.equal(redact(said, packed), '{"error":"no model "big" in "/models""}');
    });
  });
  test("contain no quote from any part of the conversation", () => {
    const content = Array.from({ length: 300 }, (_, n) => n.toString(36)).join("-");
    const asked = { key: null, user: null, messages: [{ role: "user" as const, content }] };
    for (let from = 0; from + 24 <= content.length; from += 1) {
      assert.match(redact(`bad: ${content.slice(from, from + 24)}!`, asked), /quote the request/);
      const shorter = `bad: ${content.slice(from, from + 23)}!`;
      assert.equal(redact(shorter, asked), shorter);
    }
  });
  test("contain no quotes if the conversation takes too long to compare", () => {
    const asked = {
      key: null,
      user: null,
      messages: [{ role: "user" as const, content: "a".repeat(262_145) }],
    };
    assert.match(redact("it is too long", asked), /quote the request/);
  });
  test("show hidden characters, also those that JSON had escaped", () => {
    const said = redact(`bad \u202ekey, ${String.raw`\u2066`}no\u200b`, unlogged);
    assert.equal(said, String.raw`bad \u202ekey, \u2066no\u200b`);
  });
  test("have one line of a few hundred characters", () => {
    const said = redact("a\nb ".repeat(10_000), unlogged);
    assert.ok(said.length <= 300 && !said.includes("\n"));
  });
});

describe("a circuit", () => {
  /** A request that is sent at this time and fails. */
  const fail = (circuit: Circuit, nowMs: number) => circuit.failed(nowMs, circuit.begin(nowMs, null), false);
  /** One that breaks off in the middle of its answer. */
  const breakOff = (circuit: Circuit, nowMs: number) => {
    const attempt = circuit.begin(nowMs, null);
    circuit.answered();
    return circuit.failed(nowMs, attempt, true);
  };

  test("opens after several failures in a row, sends one trial request, and cools down longer each time", () => {
    const circuit = new Circuit();
    for (let n = 1; n < failuresMax; n += 1) assert.equal(fail(circuit, 0), false);
    circuit.answered();
    for (let n = 1; n < failuresMax; n += 1) fail(circuit, 0);
    assert.ok(circuit.admits(0), "a success in between begins anew");
    assert.ok(fail(circuit, 0));
    let nowMs = 0;
    for (let rest = openMs; rest < 2 * openMsMax; rest = 2 * rest) {
      const atMost = Math.min(rest, openMsMax);
      assert.ok(circuit.isOpen(nowMs + atMost - 1) && !circuit.admits(nowMs + atMost - 1));
      nowMs += atMost;
      assert.ok(circuit.admits(nowMs) && !circuit.isOpen(nowMs));
      const trial = circuit.begin(nowMs, null);
      assert.ok(!circuit.admits(nowMs), "one at a time");
      assert.ok(circuit.failed(nowMs, trial, false));
    }
    nowMs += openMsMax;
    circuit.ended(circuit.begin(nowMs, null));
    assert.ok(circuit.admits(nowMs), "a trial that told nothing makes room for another");
    circuit.begin(nowMs, null);
    assert.ok(circuit.answered());
    assert.ok(circuit.admits(nowMs));
    circuit.begin(nowMs, null);
    assert.ok(circuit.admits(nowMs), "not one at a time any more");
  });

  test("ignores late failures of earlier requests before, during and after a trial", () => {
    const circuit = new Circuit();
    const early = Array.from({ length: 2 * failuresMax }, () => circuit.begin(0, null));
    for (let n = 0; n < failuresMax; n += 1) fail(circuit, 0);
    for (const attempt of early.slice(0, 2)) assert.equal(circuit.failed(openMs - 1, attempt, false), false);
    assert.ok(circuit.admits(openMs));
    const trial = circuit.begin(openMs, null);
    for (const attempt of early.slice(2, 4)) {
      assert.equal(circuit.failed(openMs, attempt, true), false);
      circuit.ended(attempt);
    }
    assert.ok(!circuit.admits(openMs), "the trial goes on");
    circuit.answered();
    for (const attempt of early.slice(4)) assert.equal(circuit.failed(openMs, attempt, true), false);
    assert.ok(circuit.admits(openMs));
    circuit.ended(trial);
  });

  test("keeps the trial for a request that is sent again, and for no other request", () => {
    const circuit = new Circuit();
    for (let n = 0; n < failuresMax; n += 1) fail(circuit, 0);
    const early = circuit.begin(openMs - 1, null);
    const trial = circuit.begin(openMs, null);
    const again = circuit.begin(openMs, trial);
    circuit.ended(trial);
    assert.ok(!circuit.admits(openMs), "its first connection ends, it does not");
    const stranger = circuit.begin(openMs, early);
    assert.equal(circuit.failed(openMs, stranger, false), false);
    assert.ok(circuit.failed(openMs, again, false));
    assert.ok(circuit.isOpen(openMs + 2 * openMs - 1));
  });

  test("opens after several broken answers, longer each time until an answer is whole", () => {
    const circuit = new Circuit();
    for (let n = 1; n < failuresMax; n += 1) assert.equal(breakOff(circuit, 0), false);
    circuit.completed();
    for (let n = 1; n < failuresMax; n += 1) assert.equal(breakOff(circuit, 0), false);
    assert.equal(fail(circuit, 0), false, "counted apart");
    assert.ok(breakOff(circuit, 0));
    assert.equal(circuit.openUntilMs, openMs);
    assert.ok(breakOff(circuit, openMs), "a trial that breaks off is enough");
    assert.equal(circuit.openUntilMs, 3 * openMs);
    circuit.answered();
    circuit.completed();
    for (let n = 1; n < failuresMax; n += 1) assert.equal(breakOff(circuit, 0), false);
    assert.ok(breakOff(circuit, 0));
    assert.equal(circuit.openUntilMs, openMs);
  });
});

test("reads retry-after as seconds or as a date, in whole seconds, at least one", () => {
  const seconds = (header: string | undefined) => failureOfStatus(429, header, "").retryAfterSeconds;
  assert.deepEqual(["0", "0.4", "7", "86400", "soon", undefined].map(seconds), [
    1,
    1,
    7,
    86_400,
    undefined,
    undefined,
  ]);
  const inAMinute = seconds(new Date(Date.now() + 30_000).toUTCString());
  assert.ok(inAMinute !== undefined && inAMinute > 20 && inAMinute <= 30);
});

/** The text that is passed on of an answer with these events. */
function passedOn(
  events: readonly string[],
  reason: "stop" | "length",
  { stop = [], tags = null }: { stop?: string[]; tags?: [string, string] | null } = {},
): string[] {
  const text = new AnswerText({ stop, tags, opened: false });
  const segments = [...events.flatMap((event) => text.push(event, 1, [])), ...text.end(reason)];
  return segments.map((segment) => segment.text).filter((each) => each !== "");
}

test("passes text on unchanged wherever characters and tags are cut", () => {
  const piece = fc.constantFrom(
    "a",
    "<",
    "think>",
    "</",
    "\ud83d",
    "\ude00",
    "\u{1f600}",
    "ST",
    "OP",
    "\ufffd",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), (texts) => {
      const whole = texts
        .join("")
        .replace(/[\ud800-\udbff]$/, "")
        .toWellFormed();
      assert.equal(passedOn(texts, "stop").join(""), whole);
      const cut = passedOn(texts, "length").join("");
      assert.equal(cut.replace(/\ufffd+$/, ""), whole.replace(/\ufffd+$/, ""));
      const visible = passedOn(texts, "stop", { stop: ["STOP"], tags: ["<think>", "</think>"] }).join("");
      assert.ok(visible.isWellFormed() && !visible.includes("STOP") && !visible.includes("<think>"));
    }),
  );
});

test("leaves out U+FFFD at the end of an answer that was cut, and no other", () => {
  for (const events of [
    ["a\ufffd"],
    ["a", "\ufffd"],
    ["a", "\ufffd", "\ufffd", "\ufffd"],
    ["a", "\ufffd\ud83d"],
  ]) {
    assert.deepEqual(passedOn(events, "length"), ["a"], JSON.stringify(events));
    assert.deepEqual(passedOn(events, "length", { stop: ["x"], tags: ["<t>", "</t>"] }), ["a"]);
  }
  assert.deepEqual(passedOn(["a", "\ufffd", "b", "\ufffd"], "length"), ["a", "\ufffdb"]);
  assert.deepEqual(passedOn(["a", "\ufffd"], "stop"), ["a", "\ufffd"], "the model ended its answer with it");
  assert.deepEqual(passedOn(["a", "\ufffd\ufffd\ufffd\ufffd"], "length"), ["a", "\ufffd"]);
  assert.deepEqual(passedOn(["a", "\ud83d"], "stop"), ["a"], "half a character is never passed on");
});

test("keeps the tokens and log-probabilities of held text", () => {
  const logprob = (token: string) => ({
    token,
    logprob: -1,
    bytes: [...Buffer.from(token)],
    topLogprobs: [],
  });
  const text = new AnswerText({ stop: [], tags: null, opened: false });
  assert.deepEqual(text.push("\ufffd", 1, [logprob("1")]), []);
  assert.deepEqual(text.push("b", 1, [logprob("2")]), [
    { text: "\ufffdb", tokens: 2, logprobs: [logprob("1"), logprob("2")] },
  ]);
  const thinking = new AnswerText({ stop: [], tags: ["<t>", "</t>"], opened: true });
  thinking.push("a", 1, []);
  thinking.push("\ufffd", 1, []);
  thinking.end("length");
  assert.equal(thinking.thinkingTokens, 2, "held text was thinking");
});

test("passes on a long answer that nearly matches a stop sequence", () => {
  const letters = 300_000;
  const text = new AnswerText({ stop: [`${"a".repeat(letters)}b`], tags: null, opened: false });
  for (let made = 0; made < letters; made++) assert.deepEqual(text.push("a", 1, []), []);
  assert.equal(text.push("x", 1, []).length, letters + 1);
});
