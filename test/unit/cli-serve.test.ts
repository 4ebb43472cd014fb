/** `inkwell serve` and the signals that stop it, with a service that does nothing. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import type { StartupBanner } from "../../src/app/startup-banner.ts";
import type { Services } from "../../src/cli/services.ts";
import { banner, openPipe, openTerminal, type Ran, runCli, signal } from "../fixtures/cli-host.ts";
import { refused } from "../fixtures/cli-ledger.ts";

const newSignInCode = async () => "a-code";

test("stops a service if the signal comes at the end of its start", async () => {
  let stops = 0;
  const serve = async () => {
    process.emit("SIGTERM", "SIGTERM");
    const { promise: stopped, resolve } = Promise.withResolvers<void>();
    const stop = async () => {
      stops += 1;
      resolve();
    };
    return { banner, stop, stopped, hangUp() {}, newSignInCode };
  };
  const ran = await runCli(["serve"], { cwd: "/srv", services: { startService: serve } });
  assert.deepEqual([ran.code, stops], [0, 1]);
});

test("a configuration file may have the name of a command", async (t) => {
  const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-cli-serve-"));
  t.after(() => rmSync(cwd, { recursive: true }));
  const ports: number[] = [];
  const startService: Services["startService"] = async ({ listen }) => {
    ports.push(listen.port);
    return { banner, stop: async () => {}, stopped: Promise.resolve(), hangUp() {}, newSignInCode };
  };
  for (const name of ["account", "serve"]) {
    writeFileSync(path.join(cwd, name), "listen: { port: 7 }\n");
    for (const argv of [
      ["--config", name, "serve"],
      [`--config=${name}`, "serve"],
      ["serve", "--config", name],
    ]) {
      const ran = await runCli(argv, { cwd, services: { startService } });
      assert.equal(ran.code, 0, `${argv.join(" ")}: ${ran.stderr}`);
    }
  }
  assert.deepEqual(ports, [7, 7, 7, 7, 7, 7]);
});

async function started(argv: readonly string[], said: StartupBanner): Promise<Ran> {
  const serve = async () => ({
    banner: said,
    stop: async () => {},
    stopped: Promise.resolve(),
    hangUp() {},
    newSignInCode,
  });
  return await runCli(argv, { cwd: "/srv", services: { startService: serve } });
}

test("prints one line with --json: URLs, models and the first key", async () => {
  const first = { account: "default", plan: "starter", key: "ink_x", keyFile: null };
  const ran = await started(["serve", "--json"], { ...banner, tokenFile: "/srv/data/token", first });
  assert.deepEqual([ran.code, ran.stderr, ran.stdout.split("\n").length], [0, "", 2]);
  assert.deepEqual(JSON.parse(ran.stdout), {
    version: "0.0.0",
    api: "http://127.0.0.1:8080/v1",
    operator: "http://127.0.0.1:8081",
    portal: null,
    operator_token_file: "/srv/data/token",
    models: [{ id: "small", on_miniature: false }],
    first_account: { account: "default", plan: "starter", key: "ink_x", key_file: null },
  });
});

test("prints a banner without --json", async () => {
  const { stdout } = await started(["serve"], { ...banner, tokenFile: "/srv/data/token" });
  assert.match(stdout, /^Inkwell 0\.0\.0\n/);
  assert.match(stdout, /^ {2}Operator +http:\/\/127\.0\.0\.1:8081 +\(token: data\/token\)$/m);
  assert.doesNotMatch(stdout, /Portal/);
  const { stdout: withPortal } = await started(["serve"], { ...banner, portalUrl: "https://ai.example" });
  assert.match(withPortal, /^ {2}Portal +https:\/\/ai\.example +\(sign in with an API key\)$/m);
  assert.match(stdout, /^ {2}In another terminal: \.\/inkwell chat$/m);
});

/** The output of a start, at a terminal or not, and the number of sign-in codes that it made. */
async function startedAt(
  open: typeof openTerminal,
  argv: readonly string[],
  first: StartupBanner["first"],
): Promise<{ shown: string; codes: number }> {
  let codes = 0;
  const service = {
    banner: { ...banner, first },
    stop: async () => {},
    stopped: Promise.resolve(),
    hangUp() {},
    newSignInCode: async () => {
      codes += 1;
      return "a-code";
    },
  };
  const session = open(argv, { cwd: "/srv", services: { startService: async () => service } });
  assert.equal(await session.ended, 0);
  return { shown: session.screen(), codes };
}

test("shows a sign-in link to the console on the first start at a terminal, and nowhere else", async () => {
  const first = { account: "default", plan: "starter", key: "ink_x", keyFile: null };
  const { shown, codes } = await startedAt(openTerminal, ["serve"], first);
  assert.match(shown, /^ {4}http:\/\/127\.0\.0\.1:8081\/console#code=a-code$/m);
  assert.equal(codes, 1);
  for (const [open, argv, account] of [
    [openTerminal, ["serve"], null],
    [openTerminal, ["serve", "--json"], first],
    [openPipe, ["serve"], first],
  ] as const) {
    const other = await startedAt(open, argv, account);
    assert.doesNotMatch(other.shown, /code=/);
    assert.equal(other.codes, 0);
  }
});

test("shows a URL that clients can use if it listens on all addresses", async () => {
  const first = { account: "default", plan: "starter", key: "ink_x", keyFile: null };
  const { stdout } = await started(["serve"], { ...banner, onEveryAddress: true, first });
  assert.match(
    stdout,
    /^ {2}API +http:\/\/127\.0\.0\.1:8080\/v1 +\(and on every other address of this machine\)$/m,
  );
  assert.match(stdout, /curl -N http:\/\/127\.0\.0\.1:8080\/v1\/chat/);
});

test("names the file of the first key in place of the key, also in the examples", async () => {
  const first = { account: "default", plan: "starter", key: null, keyFile: "/srv/my data/first-key" };
  const { stdout } = await started(["serve"], { ...banner, first });
  assert.match(stdout, /Its key is in this file, which only its owner can read:\n\n {4}my data\/first-key\n/);
  assert.match(stdout, /Bearer \$\(cat 'my data\/first-key'\)" -H/);
  const { stdout: elsewhere } = await started(["serve"], {
    ...banner,
    first: { ...first, keyFile: "/data/first-key" },
  });
  assert.match(elsewhere, /^ {4}\/data\/first-key$/m);
  const { stdout: line } = await started(["serve", "--json"], { ...banner, first });
  assert.deepEqual(JSON.parse(line).first_account, {
    account: "default",
    plan: "starter",
    key: null,
    key_file: "/srv/my data/first-key",
  });
});

test("runs until the service has stopped", async () => {
  let stop = () => {};
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  const serve = async () => {
    setImmediate(stop);
    return { banner, stop: async () => stop(), stopped, hangUp() {}, newSignInCode };
  };
  assert.equal((await runCli(["serve"], { cwd: "/srv", services: { startService: serve } })).code, 0);
});

test("stops the service on a signal and ends when it has stopped", async () => {
  const stopped = Promise.withResolvers<void>();
  let stops = 0;
  const serve = async (_: unknown, { stdout }: { stdout: NodeJS.WritableStream }) => {
    stdout.write("up\n");
    const stop = async () => {
      stops++;
      stopped.resolve();
    };
    return { banner, stop, stopped: stopped.promise, hangUp() {}, newSignInCode };
  };
  const listeners = process.listenerCount("SIGTERM");
  const session = openPipe(["serve"], { cwd: "/srv", services: { startService: serve } });
  await session.shows("Ctrl-C stops the service.");
  signal("SIGTERM");
  await session.shows("Stopping: running answers may finish.");
  assert.equal(await session.ended, 0);
  assert.equal(stops, 1);
  assert.equal(process.listenerCount("SIGTERM"), listeners);
});

test("exits 1 with the message if it cannot start", async () => {
  refused(
    await runCli(["serve"], { cwd: "/srv", env: { INKWELL_DATABASE: "mysql://x/y" } }),
    /expected sqlite:PATH/,
  );
});
