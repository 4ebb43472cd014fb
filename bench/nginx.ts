/**
 * nginx as an upstream: fixed answers out of files, made so that it costs much less than what is measured before it.
 *
 * Each model has a path of its own, `/ID/v1/chat/completions` for the stream and `/ID/whole/v1/chat/completions` for
 * the same answer as one JSON object, because nginx does not read what it is asked.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError } from "../src/errors.ts";

export interface UpstreamAnswer {
  id: string;
  tokens: number;
  /** An event in a write of its own, as it is made; otherwise all of them together. */
  isByEvent: boolean;
}

export const upstreamAnswers: readonly UpstreamAnswer[] = [
  { id: "short", tokens: 1, isByEvent: false },
  { id: "burst", tokens: 64, isByEvent: false },
  { id: "paced", tokens: 64, isByEvent: true },
];

export const wholePath = "/whole";

const created = 1_700_000_000;
/** Of equal length, so that all events are. */
const words = [" ever", " many", " some", " well", " here", " with", " each", " long"];

export interface Nginx extends AsyncDisposable {
  origin: string;
}

/** On the cores that `taskset` understands by that name. Throws an `OperatorError` where there is no nginx. */
export async function startNginx(core: string): Promise<Nginx> {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-bench-nginx-"));
  const port = await freePort();
  for (const answer of upstreamAnswers) {
    const files = join(folder, answer.id);
    await mkdir(files);
    await writeFile(join(files, "stream"), streamOf(answer).join(""));
    await writeFile(join(files, "whole"), JSON.stringify(wholeOf(answer)));
  }
  await writeFile(join(folder, "nginx.conf"), configuration(folder, port));
  const args = ["-p", folder, "-c", join(folder, "nginx.conf"), "-e", join(folder, "log")];
  const child = spawn("taskset", ["-c", core, "nginx", ...args], { stdio: "ignore" });
  // Rejects where there is no taskset; the exit code tells as much.
  const closed = once(child, "close").catch(() => {});
  const stop = async () => {
    child.kill("SIGKILL");
    await closed;
    await rm(folder, { recursive: true });
  };
  const origin = `http://127.0.0.1:${port}`;
  while (!(await answers(origin))) {
    if (child.exitCode === null) await sleep(20);
    else {
      const said = await readFile(join(folder, "log"), "utf8").catch(() => "");
      await stop();
      throw new OperatorError(
        `nginx cannot be started${said === "" ? "" : `: ${said.trim()}`}. This benchmark needs the programs nginx and taskset on the path: on Debian, apt-get install nginx util-linux.`,
      );
    }
  }
  return { origin, [Symbol.asyncDispose]: stop };
}

async function answers(origin: string): Promise<boolean> {
  return await fetch(`${origin}/`).then(
    ({ ok }) => ok,
    () => false,
  );
}

/** Free a moment ago: nginx cannot choose one itself. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("a server has an address");
  return address.port;
}

/** One process without workers. A POST to a file is answered 405, which becomes the file itself. */
function configuration(folder: string, port: number): string {
  const locations = upstreamAnswers.flatMap((answer) => {
    const files = join(folder, answer.id);
    const eventBytes = Buffer.byteLength(streamOf(answer).at(1) ?? "");
    const pace = answer.isByEvent ? `sendfile off; postpone_output 0; output_buffers 1 ${eventBytes};` : "";
    return [
      `location = /${answer.id}/v1/chat/completions { error_page 405 =200 /${answer.id}/stream; return 405; }`,
      `location = /${answer.id}${wholePath}/v1/chat/completions { error_page 405 =200 /${answer.id}/whole; return 405; }`,
      `location = /${answer.id}/stream { alias ${join(files, "stream")}; types { } default_type text/event-stream; ${pace} }`,
      `location = /${answer.id}/whole { alias ${join(files, "whole")}; types { } default_type application/json; }`,
    ];
  });
  return `
daemon off;
master_process off;
pid ${folder}/pid;
error_log ${folder}/log;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  sendfile on;
  etag off;
  open_file_cache max=100;
  open_file_cache_valid 1h;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  server {
    listen 127.0.0.1:${port};
    location / { return 204; }
    ${locations.join("\n    ")}
  }
}
`;
}

function textOf({ tokens }: UpstreamAnswer): string[] {
  return Array.from({ length: tokens }, (_, n) => words[n % words.length] ?? "");
}

function usageOf({ tokens }: UpstreamAnswer) {
  return { prompt_tokens: 18, completion_tokens: tokens, total_tokens: 18 + tokens };
}

function wholeOf(answer: UpstreamAnswer) {
  const message = { role: "assistant", content: textOf(answer).join("") };
  const choices = [{ index: 0, message, logprobs: null, finish_reason: "length" }];
  return {
    id: "chatcmpl-0",
    object: "chat.completion",
    created,
    model: answer.id,
    choices,
    usage: usageOf(answer),
  };
}

/** The events: the role, each token, the end, the usage. */
function streamOf(answer: UpstreamAnswer): string[] {
  const head = { id: "chatcmpl-0", object: "chat.completion.chunk", created, model: answer.id };
  const event = (delta: object, finish_reason: string | null) =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, logprobs: null, finish_reason }] })}\n\n`;
  const first = event({ role: "assistant", content: "" }, null);
  const texts = textOf(answer).map((content) => event({ content }, null));
  const usage = `data: ${JSON.stringify({ ...head, choices: [], usage: usageOf(answer) })}\n\n`;
  const eventBytes = texts[0]?.length ?? 0;
  // With a comment behind it the first is as long as two of the others, so that writes of their length end with an event.
  const comment = answer.isByEvent ? `${":".padEnd(2 * eventBytes - first.length - 2, "-")}\n\n` : "";
  return [first + comment, ...texts, event({}, "length"), usage, "data: [DONE]\n\n"];
}
