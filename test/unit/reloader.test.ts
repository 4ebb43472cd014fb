/** Other workers in the result of a reload, and refusals of its preview. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { deserialize, serialize } from "node:v8";
import { connectionLimits } from "../../src/app/open-files.ts";
import { Reloader } from "../../src/app/reloader.ts";
import type { Followed } from "../../src/app/worker-here.ts";
import type { Config } from "../../src/config/load.ts";
import { Peers } from "../../src/peers.ts";
import { directory, load } from "../fixtures/configuration.ts";
import { loggerTo } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const data = directory();
const read = (more = "") =>
  load(
    `models: { small: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 1, completion: 2 } } }\n${more}`,
    { INKWELL_DATA: data },
  );

/** A reloader whose parts apply nothing. `answers`: those of the other workers. */
function reloaderOf(next: Config, answers: (string | null)[]) {
  const log: Record<string, unknown>[] = [];
  const applied: number[] = [];
  const peers = new Peers(async () => answers.map((each) => (each === null ? null : serialize(each))));
  const nothing = () => {};
  const configured = { configure: nothing };
  const plans = { kind: "unchanged", added: [], changed: [], retired: [], warnings: [] };
  const reloader: Reloader = Reflect.construct(Reloader, [
    read(),
    {
      reread: () => next,
      models: {
        prepare: async () => new Map(),
        orClose: (_: unknown, step: () => unknown) => step(),
        replace: nothing,
      },
      plans: {
        apply: async () => await nextTurn(plans),
        compare: async () => assert.fail("it is refused before"),
      },
      store: { logChange: async () => {}, times: () => ({ atMs: 1 }) },
      server: configured,
      settingsOf: ({ limits }: Config) => connectionLimits(limits, { openFiles: 1024 }),
      allowedHosts: { replace: nothing },
      portal: null,
      people: configured,
      watch: { changed: nothing },
      events: configured,
      peers,
      metrics: { reloaded: nothing },
      logger: loggerTo(log),
      onApplied: ({ limits }: Config) => applied.push(limits.messagesMax),
    },
  ]);
  const follow = async (config: Config) => {
    const argument = serialize({ by: "test", config } satisfies Followed);
    return deserialize((await peers.answer("reload", argument)) ?? assert.fail("it answers"));
  };
  return { reloader, log, applied, follow };
}

function openReloader(...given: Parameters<typeof reloaderOf>) {
  const made = reloaderOf(...given);
  made.reloader.open();
  return made;
}

test("a worker applies the newest configuration that others have taken over", async () => {
  const { reloader, applied, follow } = reloaderOf(read(), []);
  const configOf = (messages: number) => read(`limits: { messages: ${messages} }\n`);
  const before = [follow(configOf(101)), follow(configOf(102))];
  reloader.open();
  // While the second one is applied.
  await nextTurn();
  const answers = await Promise.all([...before, follow(configOf(103)), follow(configOf(104))]);
  assert.deepEqual(answers, ["", "", "", ""]);
  assert.deepEqual(applied, [102, 104]);
});

test("the log and the result name each worker that did not reload", async () => {
  const { reloader, log } = openReloader(read(), [null, "Another reload is running.", "it is wrong"]);
  const reasons = ["it does not answer.", "Another reload is running.", "it is wrong."];
  const { warnings } = await reloader.reload("test");
  assert.deepEqual(
    warnings,
    reasons.map((reason) => `A worker did not reload: ${reason}`),
  );
  const logged = () =>
    log.flatMap(({ level, msg, reason }) => (msg === "a worker did not reload" ? [{ level, reason }] : []));
  const lines = reasons.map((reason) => ({ level: 40, reason }));
  assert.deepEqual(logged(), lines);
  // Nobody else has the result of a signal.
  reloader.reloadOnSignal();
  await until("it is logged again", () => logged().length === 2 * lines.length);
});

test("the preview refuses what the reload refuses", async () => {
  const { reloader } = openReloader(read("limits: { connections: 1000000 }\n"), []);
  const refused = { code: "configuration_invalid", message: /^limits\.connections is 1000000, but / };
  await assert.rejects(reloader.reload("test"), refused);
  await assert.rejects(reloader.preview(), refused);
});
