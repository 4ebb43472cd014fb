/** `inkwell serve` and `inkwell chat` in a pseudo terminal, created by `script` of util-linux. */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { exchange } from "../fixtures/cli-host.ts";
import { ask } from "../fixtures/http-stream.ts";
import { query } from "../fixtures/ledger-file.ts";
import { entry, environment, type Folder, newFolder } from "../fixtures/program.ts";

const skip =
  process.platform === "linux" && spawnSync("script", ["--version"]).stdout?.includes("util-linux")
    ? false
    : "there is no util-linux script here";

interface Terminal extends AsyncDisposable {
  readonly ended: Promise<number | null>;
  type(keys: string): void;
  /** Resolves once the screen has shown it, after what was awaited last. */
  shows(text: string | RegExp): Promise<string>;
  /** Presses keys, and resolves when the screen has shown these texts, one after the other. */
  answers(keys: string, ...texts: (string | RegExp)[]): Promise<void>;
}

function openTerminal(folder: string, args: readonly string[], env: Record<string, string>): Terminal {
  const command = ["exec", process.execPath, entry, ...args].map((word) => `'${word}'`).join(" ");
  const child = spawn("script", ["-qefc", command, "/dev/null"], {
    cwd: folder,
    env: { ...environment(folder), TERM: "xterm", ...env },
    stdio: ["pipe", "pipe", "inherit"],
  });
  let screen = "";
  let seen = 0;
  const listeners = new Set<() => void>();
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    screen += stripVTControlCharacters(text);
    for (const listener of listeners) listener();
  });
  const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
  const terminal: Terminal = {
    ended,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
    type: (keys) => child.stdin.write(keys),
    answers: (keys, ...texts) => exchange(terminal, keys, texts),
    shows: (text) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const shown = screen.slice(seen);
          const found = typeof text === "string" ? text : text.exec(shown)?.[0];
          if (found === undefined || !shown.includes(found)) return;
          seen += shown.indexOf(found) + found.length;
          listeners.delete(look);
          resolve(found);
        };
        listeners.add(look);
        look();
        void ended.then(() => reject(new Error(`it ended without ${text}:\n${screen}`)));
      }),
  };
  return terminal;
}

describe("at a terminal", { skip }, () => {
  let folder: Folder;
  let serve: Terminal;
  let url: string;
  let key: string;

  before(async () => {
    folder = await newFolder();
    serve = openTerminal(folder.path, ["serve"], {});
    url = await serve.shows(/http:\S+(?=\/v1\b)/);
    key = await serve.shows(/ink_\w{40}/);
    await serve.shows("Ctrl-C stops the service.");
  });

  after(async () => {
    await serve[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  const endings = () =>
    query(folder.path, "select ending from charge order by at_ms").map((row) => row.ending);

  test("inkwell serve writes one readable line for each request", async () => {
    const answer = await fetch(`${url}/v1/balance`, { headers: { authorization: `Bearer ${key}` } });
    assert.equal(answer.status, 200);
    await serve.shows(/INFO: GET \/v1\/balance 200 {2}default {2}\d+ ms\r?\n/);
    await fetch(`${url}/v1/balance`, { headers: { authorization: "Bearer ink_wrong" } });
    await serve.shows(/INFO: GET \/v1\/balance 401 {2}invalid_api_key {2}\d+ ms {2}[0-9a-f-]{36}\r?\n/);
    await ask({ url, key, max_tokens: 2 });
    await serve.shows(
      /INFO: POST \/v1\/chat\/completions 200 {2}default {2}smollm2-135m-instruct {2}\d+ \+ 2 tokens {2}[\d.]+ credits {2}length {2}\d+ ms/,
    );
  });

  test("inkwell chat streams and shows the cost of a turn; Ctrl-C stops only the answer, and ends the chat at the prompt", async () => {
    const before = endings().length;
    await using chat = openTerminal(folder.path, ["chat"], { INKWELL_PORT: new URL(url).port });
    await chat.shows("Talking to smollm2-135m-instruct");
    await chat.answers("What is an inkwell?\r", /[\d.]+ credits · [\d.]+ left/, "> ");
    await chat.answers("Tell me an endless story.\r", /story\.\s+\w+ \w+ \w+/);
    await chat.answers("\u0003", "Stopped. The prompt and the tokens made until now are charged.");
    await chat.answers("And what is ink?\r", /[\d.]+ credits/, "> ");
    chat.type("\u0003");
    assert.equal(await chat.ended, 0);
    const own = endings().slice(before);
    assert.equal(own.length, 3);
    assert.equal(own[1], "client_gone");
  });

  test("Ctrl-C stops inkwell serve", async () => {
    serve.type("\u0003");
    await serve.shows("Stopping: running answers may finish.");
    assert.equal(await serve.ended, 0);
  });
});
