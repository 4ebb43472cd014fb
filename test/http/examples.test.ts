/** The programs of examples/ as a client runs them, against a service with a scripted engine. */
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { say, startService } from "../fixtures/service.ts";

const run = promisify(execFile);
const folder = path.join(import.meta.dirname, "../../examples");

/** The program of each example. The argument after it must succeed, or the example is skipped. */
const programs: Readonly<Record<string, { command: string; needs: readonly string[] }>> = {
  "chat.sh": { command: "sh", needs: ["-c", "curl --version"] },
  "chat.mjs": { command: process.execPath, needs: ["--version"] },
  "chat.py": { command: "python3", needs: ["-c", "import openai"] },
};

test("every example is run here", () => {
  assert.deepEqual(readdirSync(folder).sort(), ["README.md", ...Object.keys(programs)].sort());
});

for (const [file, { command, needs }] of Object.entries(programs)) {
  const isMissing = spawnSync(command, needs).status !== 0;
  test(`${file} shows an answer`, { skip: isMissing && `needs ${command} ${needs.join(" ")}` }, async () => {
    await using service = await startService({ script: say("Hello", " world") });
    const env = {
      ...process.env,
      INKWELL_URL: service.url,
      INKWELL_KEY: service.key,
      INKWELL_MODEL: "small",
    };
    const { stdout } = await run(command, [path.join(folder, file)], { env });
    assert.match(stdout, /Hello[\s\S]*world/);
    assert.match(stdout, /tokens|"balances"/);
  });
}

test("chat.mjs shows the message if the credits are spent", async () => {
  await using service = await startService({
    plan: {
      base: { credits: 0, every: "P1D", align: "opening" },
      overage: { credits: 0, every: "P1D", align: "opening" },
    },
  });
  const env = { ...process.env, INKWELL_URL: service.url, INKWELL_KEY: service.key };
  const failed = run(process.execPath, [path.join(folder, "chat.mjs")], { env });
  await assert.rejects(failed, (error: Error & { code?: number; stderr?: string }) => {
    assert.equal(error.code, 1);
    assert.match(error.stderr ?? "", /cannot pay this prompt/);
    return true;
  });
});
