/**
 * Clients for the benchmarks of the HTTP path, in a process of their own. Each has one connection
 * and sends the next request after the last byte of a response. They write and read raw bytes and
 * parse as little as possible, so that a client costs less than any server. The task comes from
 * stdin; the measurements are printed as JSON.
 */
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { invariant } from "../src/errors.ts";

export interface LoadTask {
  port: number;
  /** One client per key. */
  keys: string[];
  body: object;
  /** 0: one request per client. */
  seconds: number;
  /** Answers that end before are not counted. Default 0: all count, from the first one. */
  fromSeconds?: number;
  headers?: Record<string, string>;
  /** Default 200. */
  status?: number;
}

export interface LoadResult {
  requests: number;
  seconds: number;
  p50Ms: number;
  p99Ms: number;
  slowestMs: number;
  /** Longest wait of any client between two parts of an answer. */
  silenceMs: number;
  /** Counted answers that ended in each second of the run. */
  bySecond: number[];
}

const endOfChunks = "\r\n0\r\n\r\n";

/**
 * Finds the end of a response. One request runs at a time, so its last byte is the last one
 * received.
 */
class Answer {
  #head: Buffer | null = Buffer.alloc(0);
  /** Bytes of the body if the response has a content-length. */
  #bytesLeft: number | null = null;
  #tail = "";

  /** Returns true when the response is complete. */
  push(bytes: Buffer): boolean {
    if (this.#head === null) return this.#body(bytes);
    const head = this.#head.length === 0 ? bytes : Buffer.concat([this.#head, bytes]);
    const end = head.indexOf("\r\n\r\n");
    this.#head = head;
    if (end === -1) return false;
    const lines = head.toString("latin1", 0, end);
    if (!lines.startsWith(expected)) throw new Error(`answered with ${head.toString()}`);
    const length = /content-length: (\d+)/i.exec(lines)?.[1];
    if (length !== undefined) this.#bytesLeft = Number(length);
    this.#head = null;
    // Includes the end of the head, for a body that consists only of its end.
    return this.#body(head.subarray(length === undefined ? end + 2 : end + 4));
  }

  #body(bytes: Buffer): boolean {
    if (this.#bytesLeft !== null) {
      this.#bytesLeft -= bytes.length;
      return this.#bytesLeft <= 0;
    }
    const last = bytes.toString("latin1", Math.max(0, bytes.length - endOfChunks.length));
    this.#tail = (this.#tail + last).slice(-endOfChunks.length);
    return this.#tail === endOfChunks;
  }
}

function requestOf(key: string, body: string): Buffer {
  const headers = {
    host: "bench",
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    ...task.headers,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`POST /v1/chat/completions HTTP/1.1\r\n${lines.join("")}\r\n${body}`);
}

const latenciesMs: number[] = [];
const bySecond: number[] = [];
let silenceMs = 0;

function count(nowMs: number, latencyMs: number): void {
  if (nowMs < fromMs) return;
  latenciesMs.push(latencyMs);
  const second = Math.floor((nowMs - beganMs) / 1000);
  while (bySecond.length <= second) bySecond.push(0);
  bySecond[second] = (bySecond[second] ?? 0) + 1;
}

function client(port: number, request: Buffer, untilMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    let answer = new Answer();
    let sentMs = 0;
    let heardMs = 0;
    const send = (nowMs: number) => {
      sentMs = nowMs;
      heardMs = 0;
      answer = new Answer();
      socket.write(request);
    };
    socket.on("connect", () => send(performance.now()));
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("the server closed a connection")));
    socket.on("data", (bytes) => {
      invariant(typeof bytes !== "string", "bytes arrive without an encoding");
      const nowMs = performance.now();
      if (heardMs > 0) silenceMs = Math.max(silenceMs, nowMs - heardMs);
      heardMs = nowMs;
      if (!answer.push(bytes)) return;
      count(nowMs, nowMs - sentMs);
      if (nowMs < untilMs) return send(nowMs);
      socket.destroy();
      resolve();
    });
  });
}

const task: LoadTask = JSON.parse(await text(process.stdin));
const body = JSON.stringify(task.body);
const expected = `HTTP/1.1 ${task.status ?? 200}`;
const beganMs = performance.now();
const fromMs = beganMs + (task.fromSeconds ?? 0) * 1000;
const untilMs = beganMs + task.seconds * 1000;
await Promise.all(task.keys.map((key) => client(task.port, requestOf(key, body), untilMs)));
const seconds = (performance.now() - fromMs) / 1000;
latenciesMs.sort((a, b) => a - b);
const at = (share: number) => latenciesMs[Math.floor(latenciesMs.length * share)] ?? Number.NaN;
const result: LoadResult = {
  requests: latenciesMs.length,
  seconds,
  p50Ms: at(0.5),
  p99Ms: at(0.99),
  slowestMs: latenciesMs.at(-1) ?? Number.NaN,
  silenceMs,
  bySecond,
};
process.stdout.write(JSON.stringify(result));
