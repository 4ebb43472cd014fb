/** The command line as a whole: usage, help, exit codes and failures. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { services } from "../../src/cli/services.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();

/** The commands in the help of the whole. */
function named(help: string): string[] {
  return [...help.matchAll(/^ {2}(\w[\w-]*) (?:[[<.][^ ]* )? +[a-z]/gm)].map(([, name = ""]) => name);
}

describe("the command line", () => {
  const wrong: [argv: string[], message: RegExp][] = [
    [[], /Usage: \.\/inkwell/],
    [["acount"], /unknown command 'acount'[\s\S]*Did you mean account\?/],
    [["account"], /Usage: \.\/inkwell account/],
    [["account", "show"], /missing required argument 'account'/],
    [["account", "create", "alice"], /required option '--plan <plan>'/],
    [["account", "list", "more"], /too many arguments/],
    [["balance", "alice", "--verbose"], /unknown option '--verbose'/],
    [
      ["models", "pul"],
      /unknown command 'pul'\n\(Did you mean pull\?\)\nFor help: \.\/inkwell models --help/,
    ],
    [["models", "nothing"], /unknown command 'nothing'\nFor/],
    [["chat", "--url", "localhost:8080"], /'localhost:8080' is invalid\. It is a URL such as http:/],
    [["chat", "--url", "http://ada:secret@localhost"], /is invalid\. .*, without a user, a query/],
    [["chat", "--max-tokens", "0"], /It is a whole number of tokens from 1 to/],
    [["key", "create"], /missing required argument 'account'\nFor help: \.\/inkwell key create --help/],
  ];
  for (const [argv, message] of wrong) {
    test(`is wrong usage: inkwell ${argv.join(" ")}`, async () =>
      wrongUsage(await ledger.inkwell(...argv), message));
  }

  test("prints requested help to stdout", async () => {
    const ran = await ledger.inkwell("key", "create", "--help");
    assert.equal(ran.code, 0);
    assert.match(ran.stdout, /Usage: \.\/inkwell key create[\s\S]*--json/);
    assert.equal(ran.stderr, "");
  });

  test("help shows required options, other options and an example, without options of the program", async () => {
    const { stdout } = await ledger.inkwell("credits", "adjust", "--help");
    assert.match(
      stdout,
      /^Usage: \.\/inkwell credits adjust <account> <credits> --reason <text> \[options\]\n/,
    );
    assert.match(stdout, /^ {2}--reason <text> .*\(required\)$/m);
    assert.match(stdout, /^ {2}\.\/inkwell credits adjust ada -2000 --reason /m);
    assert.match(stdout, /--config <file>/);
    assert.doesNotMatch(stdout, /--version/);
  });

  test("help of the program lists all commands in groups and explains exit codes", async () => {
    const { stdout } = await ledger.inkwell("--help");
    const service = ["serve", "console", "chat", "models", "config", "reload", "requests", "events"];
    const commands = [...service, "find", "account", "key", "credits", "balance", "usage", "plans"];
    assert.deepEqual(named(stdout), [
      ...commands,
      "person",
      "link",
      "operator",
      "log",
      "audit",
      "backup",
      "clock",
      "help",
    ]);
    assert.match(stdout, /Exit codes: 0 done, 1 refused .*, 2 wrong usage/);
    assert.equal(stdout, (await ledger.inkwell("help")).stdout);
  });

  test("help of a command in a group is that after the command", async () => {
    const { stdout } = await ledger.inkwell("key", "create", "--help");
    assert.match(stdout, /^Usage: \S+ key create /);
    assert.equal((await ledger.inkwell("help", "key", "create")).stdout, stdout);
    wrongUsage(await ledger.inkwell("help", "key", "creat"), /creat/);
  });

  test("every term in help has a text, and every example is valid usage", async () => {
    const seen: string[] = [];
    let examples = 0;
    const look = async (...path: string[]): Promise<void> => {
      const { stdout } = await ledger.inkwell(...path, "--help");
      seen.push(path.join(" "));
      // Commander leaves the arguments out where none of them has a text.
      const takes = /^Usage: \.\/inkwell (?:[a-z]+(?:-[a-z]+)* )+[<[](?!options|command)/.test(stdout);
      assert.equal(
        /^Arguments:$/m.test(stdout),
        takes,
        `inkwell ${path.join(" ")}: arguments without a text`,
      );
      const parts = stdout.split("\n\n");
      for (const part of parts.filter((each) => /^(Arguments|Options|Global Options|Commands):/.test(each))) {
        assert.doesNotMatch(
          part,
          /^ {2}\S+( [<[]\S+)*$/m,
          `inkwell ${path.join(" ")}: a term without a text`,
        );
        for (const [line, term = "", text = ""] of part.matchAll(
          /^ {2}(?:--)?([a-z][\w-]*)\S*(?: <\S+)? {2,}(.*)$/gm,
        ))
          assert.notEqual(text, term.replaceAll(/[_-]/g, " "), `inkwell ${path.join(" ")}: ${line}`);
      }
      for (const line of parts.find((each) => /^Examples?:/.test(each))?.split("\n") ?? []) {
        const [, words] = /^ {2}\.\/inkwell ([^|<>$]+)/.exec(line) ?? [];
        // That one would look for the host.
        if (words === undefined || words.includes("--url")) continue;
        const argv = [...words.matchAll(/"([^"]*)"|\S+/g)].map(([word, quoted]) => quoted ?? word);
        const { code, stderr } = await ledger.inkwell(...argv);
        assert.notEqual(code, 2, `${line}: ${stderr}`);
        examples += 1;
      }
      const commands = parts.find((each) => each.startsWith("Commands:")) ?? "";
      for (const [, name = ""] of commands.matchAll(/^ {2}(\w[\w-]*)/gm))
        if (name !== "help") await look(...path, name);
    };
    for (const name of named((await ledger.inkwell("--help")).stdout)) if (name !== "help") await look(name);
    assert.equal(seen.length, 74);
    assert.ok(examples > 30, `${examples} examples`);
    const documented = readFileSync(path.join(import.meta.dirname, "../../docs/cli.md"), "utf8");
    // A group prints no document by itself.
    for (const name of seen.filter(
      (each) =>
        ![
          "account",
          "key",
          "credits",
          "config",
          "clock",
          "plans",
          "requests",
          "person",
          "link",
          "operator",
          "events",
        ].includes(each),
    ))
      assert.ok(documented.includes(`\`${name}\``), `docs/cli.md has no document for inkwell ${name}`);
  });

  for (const argv of [
    ["account", "list"],
    ["account", "show", "alice"],
    ["audit"],
    ["balance", "alice"],
    ["credits", "add", "alice", "5", "--payment", "p"],
    ["key", "create", "alice"],
    ["usage"],
  ]) {
    test(`reports a missing ledger and does not create one: inkwell ${argv.join(" ")}`, async () => {
      refused(
        await ledger.run(argv, { services: { openStore: services.openStore, audit: services.audit } }),
        /^There is no ledger at \S+inkwell\.db\. The first "\.\/inkwell serve" or "\.\/inkwell account create" makes one; .* --config or INKWELL_CONFIG/,
      );
      assert.ok(!existsSync(path.join(ledger.cwd, "data")));
    });
  }

  test("creates no ledger for an account on an unknown plan", async () => {
    const env = { INKWELL_DATA: "unmade" };
    const create = ["account", "create", "ada", "--plan", "none"];
    refused(
      await ledger.run(create, {
        env,
        services: { openStore: services.openStore },
      }),
      /^There is no plan "none"\. Defined: starter, big\.\n$/,
    );
    assert.ok(!existsSync(path.join(ledger.cwd, "unmade")));
  });

  test("the first account creates the ledger, and other commands find it", async () => {
    const env = { INKWELL_DATA: "made" };
    const real = { env, services: { openStore: services.openStore, audit: services.audit } };
    assert.equal((await ledger.run(["account", "create", "ada", "--plan", "big"], real)).code, 0);
    assert.match((await ledger.run(["balance", "ada"], real)).stdout, /^Account ada, plan big/);
    assert.match((await ledger.run(["audit"], real)).stderr, /^The ledger is sound: 3 journal entries/);
  });

  test("prints its version", async () => {
    assert.match((await ledger.inkwell("--version")).stdout, /^\d+\.\d+\.\d+\n$/);
  });

  test("closes the store if a command is refused", async () => {
    await ledger.inkwell("account", "show", "bob");
    assert.equal(ledger.closed, 1);
  });

  test("reports an unavailable store, and that the command can be repeated", async () => {
    await ledger.openAccount();
    const why = "the database cannot be read or written just now: disk I/O error";
    ledger.store.commit = () => Promise.reject(new StoreUnavailableError(why));
    const openStore = async () => ({
      store: ledger.store,
      ledger: new Ledger(ledger.store, { retriesMs: [] }),
    });
    const argv = ["credits", "add", "alice", "5", "--payment", "p"];
    const ran = await ledger.run(argv, { services: { openStore } });
    refused(
      ran,
      /^The ledger could not be read or written: .* just now: disk I\/O error\.\nSending the same command again is safe, even if this one took effect\.\n$/,
    );
    assert.equal(ledger.closed, 2);
    for (const [n, words] of [
      "credits add alice 5 --promotional",
      "credits adjust alice 5 --reason x",
      "account set alice --plan starter --new-window",
      "key create alice",
    ].entries()) {
      const { stderr } = await ledger.run(words.split(" "), { services: { openStore } });
      const [, id = ""] =
        /taken effect: send it again with --id ([a-z]+-[0-9a-f-]{36}), so that/.exec(stderr) ?? [];
      assert.notEqual(id, "", stderr);
      const again = await ledger.run([...words.split(" "), "--id", id], { services: { openStore } });
      assert.match(again.stderr, /same command again is safe/, `${n}`);
    }
  });

  test("reports a defect as such", async () => {
    const openStore = () => Promise.reject(new TypeError("no such thing"));
    refused(
      await ledger.run(["account", "list"], { services: { openStore } }),
      /defect of Inkwell[\s\S]*no such thing\n +at /,
    );
  });
});
