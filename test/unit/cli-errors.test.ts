/** Errors of the command line for scripts (`--json`), and suggestions for misspelled words. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { commandFailureOf } from "../../src/cli/failure.ts";
import { OperatorError, StoreUnavailableError } from "../../src/errors.ts";
import { responseTo } from "../../src/http/api/refusals.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Ran } from "../fixtures/cli-host.ts";
import { cliLedger, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

/** The error document of a command, which is one line on stdout with nothing beside it. */
function errorIn({ stdout, stderr }: Ran): { code: string; message: string } {
  assert.equal(stderr, "");
  assert.match(stdout, /^\{.*\}\n$/, "one line");
  const document = JSON.parse(stdout);
  assert.deepEqual(Object.keys(document), ["error"]);
  assert.deepEqual(Object.keys(document.error), ["code", "message"]);
  return document.error;
}

describe("--json", () => {
  const wrong: [rule: string, argv: string[], message: RegExp][] = [
    [
      "reports an unknown command",
      ["acount", "--json"],
      /^unknown command 'acount'\n\(Did you mean account\?\)/,
    ],
    ["reports an unknown option", ["account", "list", "--json", "--verbos"], /^unknown option '--verbos'/],
    [
      "reports an error before the option is read",
      ["account", "list", "--verbos", "--json"],
      /^unknown option/,
    ],
    ["reports a missing argument", ["--json", "account", "show"], /^missing required argument 'account'/],
    ["reports a missing value in front of it", ["usage", "--from", "--json"], /--from/],
    [
      "reports a missing command without the whole help",
      ["--json", "key"],
      /^The command is incomplete\. .*--help/,
    ],
  ];
  for (const [rule, argv, message] of wrong) {
    test(`${rule}: ${argv.join(" ")}`, async () => {
      const ran = await ledger.inkwell(...argv);
      const error = errorIn(ran);
      assert.deepEqual([ran.code, error.code], [2, "wrong_usage"]);
      assert.match(error.message, message);
    });
  }

  test("reports the refusals of commands as JSON with exit code 1", async () => {
    for (const argv of [
      ["account", "show", "bob"],
      ["balance", "bob"],
      ["usage", "bob"],
      ["credits", "add", "bob", "5", "--payment", "p"],
      ["key", "create", "bob"],
      ["key", "revoke", "key_none"],
      ["models", "pull", "none"],
      ["config", "check", "--config", "none.yaml"],
      ["chat", "--account", "bob"],
      ["account", "create", "ada", "--plan", "none"],
    ]) {
      const ran = await ledger.inkwell(...argv, "--json");
      assert.deepEqual([ran.code, errorIn(ran).code], [1, "refused"], argv.join(" "));
    }
  });

  test("reports a service that cannot start", async () => {
    const serve = () => Promise.reject(new OperatorError("Port 80 is taken.\nChoose another."));
    const error = errorIn(await ledger.run(["serve", "--json"], { services: { startService: serve } }));
    assert.deepEqual(error, { code: "refused", message: "Port 80 is taken.\nChoose another." });
  });

  test("distinguishes an unavailable database from a refusal", async () => {
    await ledger.openAccount();
    ledger.store.commit = () => Promise.reject(new StoreUnavailableError("disk I/O error"));
    const openStore = async () => ({
      store: ledger.store,
      ledger: new Ledger(ledger.store, { retriesMs: [] }),
    });
    const argv = ["credits", "add", "alice", "5", "--payment", "p", "--json"];
    const ran = await ledger.run(argv, { services: { openStore } });
    const error = errorIn(ran);
    assert.deepEqual([ran.code, error.code], [1, "store_unavailable"]);
    assert.match(error.message, /disk I\/O error.*\nSending the same command again is safe/);
  });

  test("says once how to repeat a change that the service could not write", () => {
    const { message } = responseTo(new StoreUnavailableError("disk full"));
    const { text } = commandFailureOf(new StoreUnavailableError(message), "", "create-1");
    assert.equal(
      text,
      "The ledger could not be read or written: The database cannot be reached or written now.\n" +
        "This one may have taken effect: send it again with --id create-1, so that it does not count twice.\n",
    );
  });

  test("reports a defect with its stack", async () => {
    const openStore = () => Promise.reject(new TypeError("no such thing"));
    const ran = await ledger.run(["account", "list", "--json"], { services: { openStore } });
    const error = errorIn(ran);
    assert.deepEqual([ran.code, error.code], [1, "internal_error"]);
    assert.match(error.message, /no such thing\n +at /);
  });

  test("is an argument after --", async () => {
    const ran = await ledger.inkwell("key", "show", "--", "--json");
    assert.deepEqual([ran.code, ran.stdout], [1, ""]);
  });
});

describe("hidden characters of others", () => {
  const name = "no\u202edab\u200b";
  const shown = String.raw`no\u202edab\u200b`;
  test("are escapes in an error", async () => {
    const ran = await ledger.inkwell("account", "show", name);
    assert.ok(ran.stderr.includes(shown) && !ran.stderr.includes(name), ran.stderr);
    const { stdout } = await ledger.inkwell("account", "show", name, "--json");
    assert.ok(stdout.includes(shown), stdout);
    assert.ok(JSON.parse(stdout).error.message.includes(name));
  });
  test("are escapes in a table and in its JSON", async () => {
    const label = "de\u200bfault";
    await ledger.inkwell("account", "create", "hidden", "--plan", "starter");
    await ledger.inkwell("key", "create", "hidden", "--name", label);
    const { stdout } = await ledger.inkwell("key", "list", "hidden");
    assert.ok(stdout.includes(String.raw`de\u200bfault`) && !stdout.includes(label), stdout);
    const json = await ledger.inkwell("key", "list", "hidden", "--json");
    assert.ok(!json.stdout.includes(label), json.stdout);
    assert.equal(JSON.parse(json.stdout)[0].name, label);
  });
});

describe("suggestions for misspelled words", () => {
  const cases: [argv: string[], suggestion: RegExp][] = [
    [["--jsn", "account", "list"], /unknown option '--jsn'\n\(Did you mean --json\?\)/],
    [["account", "list", "--jsn"], /unknown option '--jsn'\n\(Did you mean --json\?\)/],
    [["--confg", "x", "serve"], /\(Did you mean --config\?\)/],
    [["account", "creat", "ada"], /\(Did you mean create\?\)/],
    [["key", "create", "ada", "--nmae", "x"], /\(Did you mean --name\?\)/],
    [
      ["account", "create", "ada", "--paln", "starter"],
      /required option '--plan <plan>' not specified\n\(Unknown option '--paln'\. Did you mean --plan\?\)\n/,
    ],
    [
      ["credits", "refund", "ada", "5", "--paymnet=x"],
      /\(Unknown option '--paymnet'\. Did you mean --payment\?\)/,
    ],
    [["credits", "refund", "ada", "5", "--elephant"], /\(Unknown option '--elephant'\.\)\n/],
  ];
  for (const [argv, suggestion] of cases) {
    test(`inkwell ${argv.join(" ")}`, async () => wrongUsage(await ledger.inkwell(...argv), suggestion));
  }

  test("suggests nothing for a missing option", async () => {
    const ran = await ledger.inkwell("credits", "refund", "ada", "5", "--json");
    assert.equal(
      errorIn(ran).message,
      "required option '--id <id>' not specified\nFor help: ./inkwell credits refund --help",
    );
  });
});
