/**
 * Each argument and option of the commands that are made from actions: a wrong value is wrong
 * usage, with the option in the message and what would be right, and nothing is opened. The faults
 * come from test/fixtures/actions.ts.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { commands, wordFaults } from "../fixtures/actions.ts";
import { cliLedger } from "../fixtures/cli-ledger.ts";

const ledger = cliLedger();
const services = { openStore: () => assert.fail("nothing is opened") };

describe("the command line refuses wrong values", () => {
  for (const command of commands) {
    test(`of ${command.words}`, async () => {
      for (const { argv, at, says } of wordFaults(command)) {
        const sent = JSON.stringify(argv);
        const ran = await ledger.run(argv, { services });
        assert.deepEqual([ran.code, ran.stdout], [2, ""], `${sent}: ${ran.stderr}`);
        for (const part of [at, says])
          assert.ok(ran.stderr.includes(part), `${sent}: ${part} in ${ran.stderr}`);
        const asJson = await ledger.run(["--json", ...argv], { services });
        assert.deepEqual([asJson.code, asJson.stderr], [2, ""], sent);
        const { code, message } = JSON.parse(asJson.stdout).error;
        assert.deepEqual([code, message.includes(says)], ["wrong_usage", true], `${sent}: ${message}`);
      }
    });
  }
});
