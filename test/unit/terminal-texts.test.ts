/**
 * The commands that dialogs show, for every action of operators with a dialog. A shell splits the
 * text. The command line then sends exactly the request of the dialog, and `curl` has exactly its
 * method, URL and body.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { routeOf } from "../../src/actions/action.ts";
import { type Asked, terminalTexts } from "../../src/actions/command.ts";
import type { Field, Fields } from "../../src/actions/field.ts";
import { inputsOf as inputsOfForm, jsonIn, withoutNulls } from "../../src/web/shared/action-fields.ts";
import { initialOf } from "../../src/web/shared/form-fields.ts";
import { type Described, operatorActions, requestOf, rightJson } from "../fixtures/actions.ts";
import { CliLedger } from "../fixtures/cli-ledger.ts";
import { wordsIn } from "../fixtures/shell-words.ts";

type Json = Readonly<Record<string, unknown>>;

/** The last request that was no GET. */
let sent: unknown[] = [];
/** For questions before a change. */
const answer = {
  ...{ ledger_at: "2027-01-01T00:00:00Z", timezone: "UTC", balance: null, link: { taken: 1 } },
  ...{ data: [], next: null, configuration: { added: [], changed: [], retired: [], plans: [] } },
};
const server = createServer(async (request, response) => {
  const parts = await Array.fromAsync(request.setEncoding("utf8"));
  const isChange = request.method !== "GET";
  if (isChange) sent = [request.method, request.url, jsonOf(parts.join(""))];
  const error = { code: "test", message: "The request is recorded.", param: null };
  const head = response.setHeader("x-request-id", "r").writeHead(isChange ? 400 : 200);
  head.end(JSON.stringify(isChange ? { error } : answer));
});
const ledger = new CliLedger("");
let origin = "";

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  origin = `http://127.0.0.1:${address.port}`;
});
after(() => server.close());

function jsonOf(text: string | undefined): unknown {
  return text === undefined || text === "" ? null : JSON.parse(text);
}

/** Texts that must be quoted, and texts that look like options. */
const awkward = ["a 'b' \"c\" $(d) `e` \\ !f * {g,h}", "--json", "-x"];

function isTakenBy(field: Field | undefined, text: string): boolean {
  return field?.kind === "text" && field.check !== "overlap" && field.pattern?.test(text) === true;
}

const month = { credits: 500, every: "P1M" };
const several = [
  { credits: 300, every: "PT5H" },
  { credits: 1000, every: "P1W", align: "calendar" },
  { credits: 200, every: "P1D", name: "dear", models: ["big-*", "huge"] },
];

/** Returns the JSON of a form that opens with these values. */
function formedBy({ dry_run: _, limit: __, after: ___, ...input }: Fields, before: Json): Json {
  const fields = Object.fromEntries(Object.entries(input).filter(([name]) => name in before));
  const texts = initialOf(inputsOfForm(fields, before));
  const typed = Object.entries(fields).filter(([, field]) => field.kind === "moment" && field.isTyped);
  const days = typed.map(([name]) => [name, "2100-01-31"]);
  return withoutNulls(jsonIn(fields, { ...texts, ...Object.fromEntries(days) }));
}

/** Returns what a form of the action may send. */
function inputsOf(action: Described): Json[] {
  const { id, input } = action;
  const fields = Object.entries(input).filter(([name]) => !["dry_run", "limit", "after"].includes(name));
  const needed = {
    ...rightJson(Object.fromEntries(fields)),
    // A payment needs them.
    ...(id === "openAccount" && { credits: 5 }),
  };
  const full = rightJson(
    input,
    fields.map(([name]) => name),
  );
  const formed = [full, { ...full, spending_caps: several }].map((before) => formedBy(input, before));
  const single = fields.flatMap(([name, field]): Json[] => {
    const values = [
      ...(field.isNullable ? [null] : []),
      ...(field.kind === "choice" ? field.values : []),
      ...(field.kind === "list" ? [[], several.slice(0, 1), several] : []),
      // Inputs of a list of one.
      ...(name === "spending_caps" && id !== "draftPlan" ? [[{ ...month, align: "opening" }]] : []),
      ...(field.kind === "texts" ? [["*"], ["big-*", "small"]] : []),
      ...(field.kind === "number" && field.min < 0 ? [-5] : []),
      ...awkward.filter((text) => isTakenBy(field, text)),
    ];
    return values.map((value) => ({ ...needed, [name]: value }));
  });
  // A form whose values are those from before sends nothing.
  return [...(routeOf(action).method === "PATCH" ? [] : [needed]), full, ...formed, ...single];
}

/** A person at a terminal is asked before these. */
const asking = ["account close", "link end", "link close-accounts", "person erase"];
const withoutCommand = ["changePlans", "changeStates", "importAccountList", "topUpAccounts"];
const actions = operatorActions.filter(({ form, cases }) => form !== undefined || cases !== undefined);

describe("the request of a dialog, by curl and by the command line", () => {
  for (const action of actions) {
    test(`of ${action.id}`, async () => {
      for (const json of inputsOf(action)) {
        const [method, url, body] = requestOf(action, json);
        const request = [method, url, jsonOf(body)];
        const asked: Asked = [action, json];
        const [[, curl], command] = terminalTexts([asked], origin, "inkwell");
        const [words = []] = wordsIn(curl);
        const [x, verb, address, ...options] = words;
        assert.deepEqual([x, verb], ["-X", method]);
        const isEmpty = body === undefined;
        const [header, key, , , , data, ...rest] = options;
        assert.deepEqual([header, key, rest], ["-H", "Authorization: Bearer iko_1", []]);
        assert.equal(isEmpty, data === undefined);
        assert.deepEqual([verb, address, jsonOf(data)], [method, origin + url, request[2]]);

        assert.equal(command === undefined, withoutCommand.includes(action.id));
        if (command === undefined) continue;
        const [argv = [], ...others] = wordsIn(command[1]);
        assert.deepEqual(others, []);
        sent = [];
        const isAsked = asking.includes(argv.slice(0, 2).join(" "));
        const env = { INKWELL_SERVER: origin, INKWELL_OPERATOR_KEY: "iko_1" };
        const confirmed = isAsked ? argv.toSpliced(2, 0, "--yes") : argv;
        const { stderr } = await ledger.run(confirmed, { env });
        assert.deepEqual(sent, request, `${command[1]}\n${stderr}`);
      }
    });
  }
});

test("two requests stand below each other, and an argument that is missing is in capital letters", () => {
  const find = (id: string) => actions.find((action) => action.id === id) ?? assert.fail(id);
  const requests: Asked[] = [
    [find("openAccount"), { plan: "starter" }],
    [find("makeKey"), { account: "ada", name: "first" }],
  ];
  const [, command] = terminalTexts(requests, origin, "./inkwell");
  assert.equal(
    command?.[1],
    "./inkwell account create ID --plan starter\n./inkwell key create ada --name first",
  );
});
