/** The commands: what they do to a store, what they print where, and which exit code they end with. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, beforeEach, describe, test } from "node:test";
import { hashKey } from "../../src/access/keys.ts";
import { loadConfig } from "../../src/config.ts";
import { Ledger, StoreUnavailableError } from "../../src/credits/ledger.ts";
import { greeting, openPipe, type Ran, runCli, signal } from "../fixtures/cli-host.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { miniature } from "../fixtures/program.ts";

const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-cli-"));
after(() => rmSync(cwd, { recursive: true }));
writeFileSync(
  path.join(cwd, "inkwell.yaml"),
  `plans:
  starter: { base: { credits: 1000, every: P1D }, overage: { credits: 200, every: P1M } }
  big: { base: { credits: 5000, every: P1D }, overage: { credits: 0, every: P1M } }
models:
  small: { engine: llama, source: default, price: { prompt: 10, completion: 30 } }
`,
);
const { plans } = loadConfig({ cwd, env: {} });

let store: MemoryStore;
let closed = 0;
beforeEach(() => {
  store = new MemoryStore(plans, () => Date.UTC(2027, 0, 15, 12));
  store.close = async () => {
    closed++;
  };
  closed = 0;
});

async function inkwell(...argv: string[]): Promise<Ran> {
  const openStore = async () => ({ store, ledger: new Ledger(store) });
  return await runCli(argv, { cwd, services: { openStore } });
}

/** Runs a command that must succeed with `--json`, and gives its document. */
async function documentOf(...argv: string[]): Promise<unknown> {
  const ran = await inkwell(...argv, "--json");
  assert.equal(ran.code, 0, ran.stderr);
  return JSON.parse(ran.stdout);
}

function refused(ran: Ran, message: RegExp): void {
  assert.match(ran.stderr, message);
  assert.deepEqual({ code: ran.code, stdout: ran.stdout }, { code: 1, stdout: "" });
}

function wrongUsage(ran: Ran, message: RegExp): void {
  assert.match(ran.stderr, message);
  assert.deepEqual({ code: ran.code, stdout: ran.stdout }, { code: 2, stdout: "" });
}

async function openAccount(name = "alice"): Promise<void> {
  assert.equal((await inkwell("account", "create", name, "--plan", "starter")).code, 0);
}

async function makeKey(...options: string[]): Promise<{ id: string; key: string }> {
  const made = await documentOf("key", "create", "alice", ...options);
  assert.ok(typeof made === "object" && made !== null && "id" in made && "key" in made);
  return { id: String(made.id), key: String(made.key) };
}

describe("account", () => {
  test("create opens an account on a plan and says how to go on", async () => {
    const ran = await inkwell("account", "create", "alice", "--plan", "starter");
    assert.deepEqual(ran, {
      code: 0,
      stdout: "",
      stderr: "Account alice is open, on plan starter. A key for it: inkwell key create alice\n",
    });
    assert.equal(store.account("alice").plan, "starter");
    assert.equal(closed, 1);
  });

  test("create gives the account as a document with --json, wherever the option stands", async () => {
    const expected = { id: "alice", plan: "starter", created_at: "2027-01-15T12:00:00.000Z" };
    const ran = await inkwell("--json", "account", "create", "alice", "--plan", "starter");
    assert.deepEqual(JSON.parse(ran.stdout), expected);
  });

  test("create refuses a name that is taken, and says on which plan it is", async () => {
    await openAccount();
    refused(
      await inkwell("account", "create", "alice", "--plan", "big"),
      /account alice already, on plan starter/,
    );
  });

  test("create refuses a plan that does not exist, and names the one that was meant", async () => {
    refused(
      await inkwell("account", "create", "alice", "--plan", "startr"),
      /no plan "startr"\. Did you mean starter\?/,
    );
  });

  for (const name of ["Alice", "a b", "-a", ".a", "a/b", "a".repeat(65), "ä"]) {
    test(`create takes no account called ${name.slice(0, 10)}`, async () => {
      wrongUsage(
        await inkwell("account", "create", "--plan", "starter", "--", name),
        /1 to 64 characters: lower-case/,
      );
    });
  }

  test("list shows every account, also beyond one page of the store", async () => {
    for (let i = 0; i < 101; i++) {
      await new Ledger(store).apply({ kind: "open", account: `a${i}`, plan: "big" });
    }
    const ran = await inkwell("account", "list");
    const lines = ran.stdout.trimEnd().split("\n");
    assert.equal(lines.length, 102);
    assert.equal(lines[0], "ACCOUNT  PLAN   BASE  OVERAGE  ADDITIONAL  CREATED");
    assert.equal(lines[1], "a0       big   5,000        0           0  2027-01-15 12:00Z");
    const list = await documentOf("account", "list");
    assert.ok(Array.isArray(list) && list.length === 101);
  });

  test("list says how to begin where there is none", async () => {
    assert.match((await inkwell("account", "list")).stderr, /inkwell account create NAME --plan PLAN/);
  });

  test("show gives plan, balance and keys", async () => {
    await openAccount();
    const { id, key } = await makeKey("--name", "laptop");
    const ran = await inkwell("account", "show", "alice");
    assert.match(ran.stdout, /^Account alice, plan starter, opened 2027-01-15 12:00Z\n/);
    assert.match(ran.stdout, /^base +1,000 +1,000 +100\.00 % +2027-01-16T12:00:00\.000Z$/m);
    assert.match(ran.stdout, new RegExp(`^${id} +alice +ink_\\.\\.\\.${key.slice(-4)} +laptop +active`, "m"));
    assert.ok(!ran.stdout.includes(key), "the key itself is never shown again");
  });

  test("an account whose plan is gone is listed and shown with its problem, beside the others", async () => {
    await openAccount();
    await openAccount("bob");
    await makeKey();
    store.damage("alice", { plan: "gone" });
    const problem = 'its plan "gone" is not in the configuration';

    const list = await inkwell("account", "list");
    assert.equal(list.code, 0);
    assert.deepEqual(list.stdout.trimEnd().split("\n"), [
      "ACCOUNT  PLAN      BASE  OVERAGE  ADDITIONAL  CREATED            PROBLEM",
      `alice    gone         -        -           -  2027-01-15 12:00Z  ${problem}`,
      "bob      starter  1,000      200           0  2027-01-15 12:00Z",
    ]);
    assert.match(list.stderr, /^1 account must be mended\. .*"inkwell account set NAME --plan PLAN"/);
    const documents = await documentOf("account", "list");
    assert.ok(Array.isArray(documents));
    assert.deepEqual(
      documents.map((each) => [each.id, each.balance?.balances.base.credits, each.problem]),
      [
        ["alice", undefined, problem],
        ["bob", 1000, null],
      ],
    );

    const shown = await inkwell("account", "show", "alice");
    assert.equal(shown.code, 0);
    assert.match(shown.stdout, new RegExp(`^Its balance cannot be read: ${problem}\\.$`, "m"));
    assert.match(shown.stdout, /^key_\w+ +alice +ink_/m);
    assert.match(shown.stderr, /inkwell account set NAME --plan PLAN/);
    const document = await documentOf("account", "show", "alice");
    assert.ok(typeof document === "object" && document !== null && "balance" in document);
    assert.deepEqual([document.balance, "problem" in document && document.problem], [null, problem]);
  });

  test("show refuses an account that does not exist", async () => {
    refused(await inkwell("account", "show", "bob"), /There is no account bob/);
  });

  test("set changes the plan at once where it is an upgrade", async () => {
    await openAccount();
    const ran = await inkwell("account", "set", "alice", "--plan", "big");
    assert.equal(ran.stderr, "Account alice is on plan big.\n");
    assert.equal(store.account("alice").base, 5_000_000_000);
  });

  test("set refuses an account or plan that does not exist", async () => {
    refused(await inkwell("account", "set", "bob", "--plan", "big"), /There is no account bob/);
    await openAccount();
    refused(
      await inkwell("account", "set", "alice", "--plan", "huge"),
      /no plan "huge"\. There are: starter, big\./,
    );
  });
});

describe("key", () => {
  test("create prints the key alone on stdout, and everything else on stderr", async () => {
    await openAccount();
    const ran = await inkwell("key", "create", "alice");
    assert.match(ran.stdout, /^ink_[0-9A-Za-z]{40}\n$/);
    assert.match(
      ran.stderr,
      /^This key of alice is shown only now; .* inkwell key revoke key_[0-9a-f]{16}\n$/,
    );
    const [row] = await store.keys("alice");
    assert.equal(row?.hash, hashKey(ran.stdout.trim()));
    assert.deepEqual([row.models, row.expiresMs], [["*"], null]);
  });

  test("create takes a name, models, an end and limits", async () => {
    await openAccount();
    const options = [
      "--name",
      "ci",
      "--models",
      "small",
      "--expires",
      "2100-02-28",
      "--rpm",
      "5",
      "--tpm",
      "6",
      "--concurrent",
      "7",
    ];
    const { id } = await makeKey(...options);
    const row = store.key(id);
    assert.equal(row.name, "ci");
    assert.deepEqual(row.models, ["small"]);
    assert.equal(row.expiresMs, Date.UTC(2100, 1, 28));
    assert.deepEqual([row.requestsPerMinute, row.tokensPerMinute, row.concurrent], [5, 6, 7]);
  });

  test("create refuses an account, a model or an end that cannot be", async () => {
    refused(await inkwell("key", "create", "bob"), /There is no account bob/);
    await openAccount();
    refused(
      await inkwell("key", "create", "alice", "--models", "small,smal"),
      /no model "smal"\. Did you mean small\?/,
    );
    refused(await inkwell("key", "create", "alice", "--expires", "2020-01-01"), /would have expired already/);
    assert.deepEqual(await store.keys(), []);
  });

  const bad: [option: string, value: string, message: RegExp][] = [
    ["--expires", "tomorrow", /ISO 8601 with its zone/],
    ["--expires", "2027-02-31", /ISO 8601 with its zone/],
    ["--expires", "2027-01-01T12:00:00", /ISO 8601 with its zone/],
    ["--rpm", "0", /A limit is a whole number from 1/],
    ["--tpm", "1.5", /A limit is a whole number/],
    ["--concurrent", "many", /A limit is a whole number/],
    ["--models", "a,,b", /list of model ids/],
    ["--name", "a\nb", /on one line/],
  ];
  for (const [option, value, message] of bad) {
    test(`create does not take ${option} ${JSON.stringify(value)}`, async () => {
      wrongUsage(await inkwell("key", "create", "alice", option, value), message);
    });
  }

  test("list hides keys that have ended, unless asked for all", async () => {
    await openAccount();
    await openAccount("bob");
    const { id } = await makeKey();
    const kept = await makeKey();
    await inkwell("key", "create", "bob");
    await inkwell("key", "revoke", id);
    const ran = await inkwell("key", "list", "alice");
    assert.deepEqual(ran.stdout.match(/key_[0-9a-f]+/g), [kept.id]);
    assert.match(ran.stderr, /1 more, revoked or expired/);
    const all = await documentOf("key", "list", "--all");
    assert.ok(Array.isArray(all) && all.length === 3);
    refused(await inkwell("key", "list", "carol"), /There is no account carol/);
  });

  test("revoke ends a key once, and may be repeated", async () => {
    await openAccount();
    const { id } = await makeKey();
    assert.match((await inkwell("key", "revoke", id)).stderr, /is revoked; it is refused from now on/);
    assert.ok(store.key(id).revokedMs !== null);
    const earlier = await makeKey();
    await store.revokeKey(earlier.id, Date.UTC(2026, 0, 1));
    assert.match(
      (await inkwell("key", "revoke", earlier.id)).stderr,
      /was revoked before, at 2026-01-01 00:00Z/,
    );
    assert.equal(store.key(earlier.id).revokedMs, Date.UTC(2026, 0, 1));
  });

  test("revoke refuses an id that does not exist", async () => {
    refused(await inkwell("key", "revoke", "key_0"), /There is no key key_0/);
  });
});

describe("credits", () => {
  test("add counts a payment once, ever", async () => {
    await openAccount();
    const add = ["credits", "add", "alice", "50", "--payment", "p1"];
    assert.equal((await inkwell(...add)).stderr, "50 credits added to alice.\n");
    assert.match((await inkwell(...add)).stderr, /Payment p1 was counted before; nothing has changed/);
    assert.equal(store.account("alice").additional, 50_000_000);
    refused(
      await inkwell("credits", "add", "alice", "51", "--payment", "p1"),
      /with 50 credits instead of 51/,
    );
    assert.equal(store.account("alice").additional, 50_000_000);
  });

  test("add shows the balance with --json, and whether the payment was known", async () => {
    await openAccount();
    const add = ["credits", "add", "alice", "50", "--payment", "p1"];
    for (const again of [false, true]) {
      const document = await documentOf(...add);
      const balance = await documentOf("balance", "alice");
      assert.deepEqual(document, { account: "alice", again, balance });
    }
  });

  test("adjust goes up and down, but not below what there is", async () => {
    await openAccount();
    const adjust = (credits: string, id: string, reason = "a gift") =>
      inkwell("credits", "adjust", "alice", credits, "--reason", reason, "--id", id);
    assert.match((await adjust("30", "i1")).stderr, /additional credits of alice are now 30\./);
    assert.match((await adjust("-10", "i2")).stderr, /are now 20\./);
    assert.match((await adjust("-10", "i2")).stderr, /Adjustment i2 was made before/);
    refused(
      await adjust("-9", "i2"),
      /was made before, by -10 credits for the reason "a gift", instead of -9 for "a gift"/,
    );
    refused(await adjust("-10", "i2", "a slip"), /for the reason "a gift", instead of -10 for "a slip"/);
    refused(await adjust("-21", "i3"), /has 20 additional credits; no more than that can be taken away/);
    assert.equal(store.account("alice").additional, 20_000_000);
  });

  test("refuse an account that does not exist", async () => {
    refused(await inkwell("credits", "add", "bob", "5", "--payment", "p"), /There is no account bob/);
  });

  for (const amount of ["0", "-5", "1.5", "1e3", "9000001", "ten", ""]) {
    test(`add does not take ${JSON.stringify(amount)} credits`, async () => {
      wrongUsage(
        await inkwell("credits", "add", "alice", amount, "--payment", "p"),
        /Credits are a whole number from 1 to 9000000/,
      );
    });
  }

  test("need their ids", async () => {
    wrongUsage(await inkwell("credits", "add", "alice", "5"), /required option '--payment <id>'/);
    wrongUsage(
      await inkwell("credits", "adjust", "alice", "5", "--reason", "x"),
      /required option '--id <id>'/,
    );
  });
});

describe("balance", () => {
  test("is the balance object of the API with --json", async () => {
    await openAccount();
    assert.deepEqual(await documentOf("balance", "alice"), {
      object: "balance",
      available: true,
      plan: "starter",
      balances: {
        base: { credits: 1000, percent: 100 },
        overage: { credits: 200, percent: 100 },
        additional: { credits: 0 },
        total: { credits: 1200, percent: 100 },
      },
      caps: { base: { credits: 1000 }, overage: { credits: 200 }, total: { credits: 1200 } },
      baseWindow: { startedAt: "2027-01-15T12:00:00.000Z", refreshesAt: "2027-01-16T12:00:00.000Z" },
      overageWindow: { startedAt: "2027-01-15T12:00:00.000Z", refreshesAt: "2027-02-15T12:00:00.000Z" },
    });
  });

  test("is a table for people", async () => {
    await openAccount();
    assert.equal(
      (await inkwell("balance", "alice")).stdout,
      `Account alice, plan starter

BUCKET      CREDITS     OF      LEFT  REFRESHES
base          1,000  1,000  100.00 %  2027-01-16T12:00:00.000Z
overage         200    200  100.00 %  2027-02-15T12:00:00.000Z
additional        0
total         1,200  1,200  100.00 %
`,
    );
  });

  test("tells an operator what is wrong with a damaged account, and exits 1", async () => {
    await openAccount();
    store.damage("alice", { plan: "gone" });
    const ran = await inkwell("balance", "alice");
    refused(
      ran,
      /^The balance of alice cannot be read: its plan "gone" is not in the configuration\. An account whose plan is gone is put on another one by "inkwell account set NAME --plan PLAN"/,
    );
    assert.doesNotMatch(ran.stderr, /The operator of this service/, "that is who reads it");
  });
});

describe("models", () => {
  test("lists the configured models with their prices", async () => {
    const pricing = { prompt: 10, completion: 30, cached_prompt: 10 };
    assert.deepEqual(await documentOf("models"), [
      {
        id: "small",
        engine: "llama",
        source: "default",
        context_window: 8192,
        parallel: 4,
        pricing,
        file: { path: null, bytes: null, problem: null },
      },
    ]);
    assert.match((await inkwell("models")).stdout, /^small +default +8,192 +4 +10 +10 +30 +to be fetched$/m);
  });

  test("says which files are there, how large they are, and which will not do", async () => {
    const { size } = statSync(miniature);
    writeFileSync(path.join(cwd, "bad.gguf"), "no");
    const price = "price: { prompt: 1, completion: 1 }";
    writeFileSync(
      path.join(cwd, "files.yaml"),
      `models:
  there: { engine: llama, source: ${miniature}, ${price} }
  bad: { engine: llama, source: bad.gguf, ${price} }
  remote: { engine: upstream, url: "https://a.example/v1", model: x, ${price} }
`,
    );
    const ran = await inkwell("models", "--config", "files.yaml");
    assert.equal(ran.code, 0);
    assert.deepEqual(
      ran.stdout.split("\n").map((line) => line.split(/ {2,}/).at(-1)),
      ["FILE", `${(size / 1e6).toFixed(1)} MB`, "will not do", "-", ""],
    );
    assert.match(ran.stderr, /^model file \S+bad\.gguf cannot be used: .*\.\nPrices in credits/);
    const documents = await documentOf("models", "--config", "files.yaml");
    assert.ok(Array.isArray(documents));
    assert.deepEqual(documents[0].file, { path: miniature, bytes: size, problem: null });
    assert.match(documents[1].file.problem, /bad\.gguf cannot be used/);
    assert.equal(documents[2].file, null);
  });

  test("pull fetches the named model and prints where it lies", async () => {
    const pulled: string[] = [];
    const pullModel = async (_: unknown, id: string) => {
      pulled.push(id);
      return "/models/small.gguf";
    };
    const ran = await runCli(["models", "pull", "small"], { cwd, services: { pullModel } });
    assert.deepEqual([ran.code, ran.stdout, pulled], [0, "/models/small.gguf\n", ["small"]]);
    refused(await runCli(["models", "pull", "smal"], { cwd, services: { pullModel } }), /Did you mean small/);
    const remote = await runCli(["models", "pull", "small"], {
      cwd,
      services: { pullModel: async () => null },
    });
    assert.deepEqual([remote.code, /no file to fetch/.test(remote.stdout)], [0, true]);
  });
});

describe("config check", () => {
  test("says that the configuration is right, and what it comes down to", async () => {
    const ran = await inkwell("config", "check");
    assert.equal(ran.stderr, "The configuration is right: 2 plans, 1 model.\n");
    assert.match(ran.stdout, /^plan +big: 5,000 credits every P1D, overage 0 every P1M$/m);
  });

  test("shows no secrets", async () => {
    const secrets = {
      INKWELL_OPERATOR_TOKEN: "the-token-of-the-operator",
      HF_TOKEN: "hf_secret",
      INKWELL_API_KEY: "ink_x",
    };
    for (const json of [[], ["--json"]]) {
      const ran = await runCli(["config", "check", ...json], { cwd, env: secrets });
      assert.equal(ran.code, 0);
      for (const secret of Object.values(secrets)) assert.ok(!(ran.stdout + ran.stderr).includes(secret));
    }
  });

  test("tells every problem and exits 1, and so does any other command", async () => {
    const env = { INKWELL_PORT: "x", INKWELL_LIMITS__QUEUE: "y" };
    for (const argv of [
      ["config", "check"],
      ["account", "list"],
      ["models", "--json"],
    ]) {
      refused(
        await runCli(argv, { cwd, env }),
        /^The configuration is wrong in 2 places:\n {2}INKWELL_PORT.*\n {2}INKWELL_LIMITS__QUEUE/,
      );
    }
  });

  test("tells of model files that no service would start with, and exits 1", async () => {
    const llama = (source: string) =>
      `{ engine: llama, source: ${source}, price: { prompt: 1, completion: 1 } }`;
    writeFileSync(path.join(cwd, "short.gguf"), "no");
    writeFileSync(
      path.join(cwd, "missing.yaml"),
      `models:\n  none: ${llama("none.gguf")}\n  short: ${llama("short.gguf")}\n  later: ${llama("default")}\n`,
    );
    refused(
      await inkwell("config", "check", "--config", "missing.yaml"),
      /^The configuration can be read, but no service starts with its model files:\n {2}models\.none\.source: model file \S+none\.gguf cannot be opened: there is no such file\n {2}models\.short\.source: model file \S+short\.gguf cannot be used: .*\n$/,
    );
  });

  test("reads the file that --config names", async () => {
    writeFileSync(path.join(cwd, "other.yaml"), "listen: { port: 99 }");
    const ran = await inkwell("config", "check", "--config", "other.yaml");
    assert.match(ran.stdout, /127\.0\.0\.1 port 99/);
  });
});

describe("the command line", () => {
  const wrong: [argv: string[], message: RegExp][] = [
    [[], /Usage: inkwell/],
    [["acount"], /unknown command 'acount'[\s\S]*Did you mean account\?/],
    [["account"], /Usage: inkwell account/],
    [["account", "show"], /missing required argument 'name'/],
    [["account", "create", "alice"], /required option '--plan <plan>'/],
    [["account", "list", "more"], /too many arguments/],
    [["balance", "alice", "--verbose"], /unknown option '--verbose'/],
  ];
  for (const [argv, message] of wrong) {
    test(`is wrong usage: inkwell ${argv.join(" ")}`, async () =>
      wrongUsage(await inkwell(...argv), message));
  }

  test("helps on stdout where help is asked for", async () => {
    const ran = await inkwell("key", "create", "--help");
    assert.equal(ran.code, 0);
    assert.match(ran.stdout, /Usage: inkwell key create[\s\S]*--json/);
    assert.equal(ran.stderr, "");
  });

  test("tells its version", async () => {
    assert.match((await inkwell("--version")).stdout, /^\d+\.\d+\.\d+\n$/);
  });

  test("closes the store also where a command is refused", async () => {
    await inkwell("account", "show", "bob");
    assert.equal(closed, 1);
  });

  test("a store that cannot be reached is no defect: why, and that the command may be sent again", async () => {
    await openAccount();
    const why = "the database cannot be read or written just now: disk I/O error";
    store.commit = () => Promise.reject(new StoreUnavailableError(why));
    const openStore = async () => ({ store, ledger: new Ledger(store, { retriesMs: [] }) });
    const ran = await runCli(["credits", "add", "alice", "5", "--payment", "p"], {
      cwd,
      services: { openStore },
    });
    refused(
      ran,
      /^The ledger could not be read or written: .* just now: disk I\/O error\.\nSending the same command again is safe.* same --payment or --id nothing is counted twice\.\n$/,
    );
    assert.equal(closed, 2);
  });

  test("owns up to a defect", async () => {
    const openStore = () => Promise.reject(new TypeError("no such thing"));
    refused(
      await runCli(["account", "list"], { cwd, services: { openStore } }),
      /defect of Inkwell[\s\S]*no such thing\n +at /,
    );
  });
});

describe("chat", () => {
  test("without a key makes its own for a day, and revokes it when it ends", async () => {
    await openAccount("default");
    const openStore = async () => ({ store, ledger: new Ledger(store) });
    const env = { INKWELL_PORT: "1" };
    const ran = await runCli(["chat"], { cwd, services: { openStore }, env });
    assert.match(ran.stderr, /^No service answers at http:\/\/127\.0\.0\.1:1/);
    const [row, ...others] = await store.keys();
    assert.deepEqual(others, []);
    assert.equal(row?.name, "chat");
    assert.equal(row?.account, "default");
    assert.equal((row?.expiresMs ?? 0) - (row?.createdMs ?? 0), 86_400_000);
    assert.ok(row?.revokedMs !== null);
    refused(
      await runCli(["chat", "--account", "nobody"], { cwd, services: { openStore }, env }),
      /no account nobody/,
    );
  });
});

describe("serve", () => {
  test("runs until the service has stopped", async () => {
    let stop = () => {};
    const stopped = new Promise<void>((resolve) => {
      stop = resolve;
    });
    const serve = async () => {
      setImmediate(stop);
      return { greeting, stop: async () => stop(), stopped };
    };
    assert.equal((await runCli(["serve"], { cwd, services: { serve } })).code, 0);
  });

  test("stops the service at a signal, says so, and ends when it has stopped", async () => {
    const stopped = Promise.withResolvers<void>();
    let stops = 0;
    const serve = async (_: unknown, { stdout }: { stdout: NodeJS.WritableStream }) => {
      stdout.write("up\n");
      const stop = async () => {
        stops++;
        stopped.resolve();
      };
      return { greeting, stop, stopped: stopped.promise };
    };
    const listeners = process.listenerCount("SIGTERM");
    const session = openPipe(["serve"], { cwd, services: { serve } });
    await session.shows("up");
    signal("SIGTERM");
    await session.shows("Stopping: running answers may finish.");
    assert.equal(await session.ended, 0);
    assert.equal(stops, 1);
    assert.equal(process.listenerCount("SIGTERM"), listeners);
  });

  test("exits 1 with the message where it cannot start", async () => {
    refused(
      await runCli(["serve"], { cwd, env: { INKWELL_DATABASE: "mysql://x/y" } }),
      /expected sqlite:PATH/,
    );
  });
});
