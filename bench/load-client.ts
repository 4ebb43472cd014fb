/**
 * The clients of `bench/gateway.ts`, in a process of their own: each has one connection and sends the next request
 * when the last byte of an answer is there. Writes and reads bytes itself, so that the client costs less than any
 * server. Prints what it measured as JSON.
 */
import { connect } from "node:net";

export interface LoadTask {
  port: number;
  /** One client for each. */
  keys: string[];
  body: object;
  seconds: number;
}

export interface LoadResult {
  requests: number;
  seconds: number;
  p50Ms: number;
  p99Ms: number;
}

/** Where the first answer in `bytes` ends; -1 where it is not whole yet. */
function endOfAnswer(bytes: Buffer): number {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd === -1) return -1;
  const head = bytes.toString("latin1", 0, headEnd);
  if (!head.startsWith("HTTP/1.1 200")) throw new Error(`answered with ${bytes.toString()}`);
  const length = /content-length: (\d+)/i.exec(head)?.[1];
  if (length !== undefined) {
    const end = headEnd + 4 + Number(length);
    return bytes.length >= end ? end : -1;
  }
  const last = bytes.indexOf("\r\n0\r\n\r\n", headEnd);
  return last === -1 ? -1 : last + 7;
}

function requestOf(key: string, body: string): Buffer {
  return Buffer.from(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

function client(port: number, request: Buffer, untilMs: number, latenciesMs: number[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    let answer: Buffer = Buffer.alloc(0);
    let sentMs = 0;
    const send = () => {
      sentMs = performance.now();
      socket.write(request);
    };
    socket.on("connect", send);
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("the server closed a connection")));
    socket.on("data", (bytes) => {
      answer = answer.length === 0 ? bytes : Buffer.concat([answer, bytes]);
      const end = endOfAnswer(answer);
      if (end === -1) return;
      answer = answer.subarray(end);
      const nowMs = performance.now();
      latenciesMs.push(nowMs - sentMs);
      if (nowMs < untilMs) return send();
      socket.destroy();
      resolve();
    });
  });
}

const [argument = ""] = process.argv.slice(2);
const task: LoadTask = JSON.parse(argument);
const body = JSON.stringify(task.body);
const latenciesMs: number[] = [];
const beganMs = performance.now();
const untilMs = beganMs + task.seconds * 1000;
await Promise.all(task.keys.map((key) => client(task.port, requestOf(key, body), untilMs, latenciesMs)));
const seconds = (performance.now() - beganMs) / 1000;
latenciesMs.sort((a, b) => a - b);
const at = (share: number) => latenciesMs[Math.floor(latenciesMs.length * share)] ?? Number.NaN;
const result: LoadResult = { requests: latenciesMs.length, seconds, p50Ms: at(0.5), p99Ms: at(0.99) };
process.stdout.write(JSON.stringify(result));
