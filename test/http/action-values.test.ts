/**
 * Fields of each action over HTTP, of operators and of holders of keys. A wrong value changes
 * nothing, and is refused with the code of its fault, the name of the field and what would be
 * right. The faults come from test/fixtures/actions.ts: every third one, or all before a release.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { ActionTexts } from "../../src/actions/action.ts";
import { showLink } from "../../src/actions/views.ts";
import { changeLogRow } from "../../src/store/change-log.ts";
import {
  operatorActions,
  portalActions,
  requestOf,
  rightJson,
  rowsOf,
  sentFaults,
  withFault,
} from "../fixtures/actions.ts";
import { linkRow } from "../fixtures/link-rows.ts";
import {
  fieldsOf,
  listOf,
  type OperatorAnswer,
  refused,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { startPortal, type TestPortal } from "../fixtures/portal.ts";
import { startService, type TestService } from "../fixtures/service.ts";
import { some } from "../fixtures/thorough.ts";

const opened = new AsyncDisposableStack();
let service: TestService;
let operator: TestOperator;
let portal: TestPortal;
let cookie: string;

before(async () => {
  service = opened.use(await startService());
  operator = opened.use(await startOperator(service));
  portal = opened.use(await startPortal(service));
  const { store } = service;
  const { link } = rightJson(showLink.input);
  const logged = { kind: "link", by: "test", atMs: 1, before: null, after: null } as const;
  await store.links.add(linkRow(1, { id: String(link) }), changeLogRow(logged));
  cookie = await portal.signIn(await service.addKey({ id: "boss", portal: "account" }));
});
after(() => opened.disposeAsync());

type Send = (method: string, path: string, body?: string) => Promise<OperatorAnswer>;

const listeners: [name: string, actions: readonly ActionTexts[], send: Send][] = [
  [
    "the operator API",
    operatorActions,
    (method, path, body) => operator.ask(method, path, body === undefined ? {} : { body }),
  ],
  [
    "the portal's API",
    portalActions,
    (method, path, body) =>
      portal.ask(method, path, { headers: { cookie }, ...(body === undefined ? {} : { body }) }),
  ],
];

/** Each of many accounts is put on a plan by itself, and its row says why it is not. */
function isOfRows({ id }: ActionTexts, { param, code }: ReturnType<typeof sentFaults>[number]): boolean {
  return id === "changePlans" && param === "plan" && code === "invalid_value";
}

for (const [listener, actions, send] of listeners) {
  describe(`${listener} refuses wrong values`, () => {
    for (const action of actions) {
      test(`of ${action.http}`, async () => {
        const before = rowsOf(service);
        const right = rightJson(action.input, ["spending_caps", "acts_for"]);
        for (const fault of some(sentFaults(action), 3)) {
          const answer = await send(...requestOf(action, withFault(right, fault)));
          const { code, param, message } = fieldsOf(answer.body.error ?? {});
          const { code: expected, param: path, says } = fault;
          const sent = JSON.stringify(fault).slice(0, 300);
          if (isOfRows(action, fault)) {
            const rows = listOf(answer.body.data).map(({ result, text }) => [
              result,
              String(text).includes(says),
            ]);
            assert.deepEqual(rows, [["refused", true]], `${sent}: ${answer.text}`);
            continue;
          }
          assert.deepEqual([answer.status, code, param], [400, expected, path], `${sent}: ${answer.text}`);
          assert.ok(String(message).includes(says), `${sent}: ${message}`);
        }
        assert.deepEqual(rowsOf(service), before, "nothing has changed");
      });
    }
  });
}

for (const [listener, actions, send] of listeners) {
  // A list with a cursor follows another one.
  const optionsOf = ({ input }: ActionTexts) =>
    Object.keys(input).filter((name) => input[name]?.isOptional === true && name !== "after");
  test(`${listener} takes a right value for each option of its lists`, async () => {
    for (const action of actions.filter(({ http }) => http.startsWith("GET "))) {
      for (const name of optionsOf(action)) {
        const { status, text } = await send(...requestOf(action, rightJson(action.input, [name])));
        assert.equal(status, 200, `${action.id} with ${name}: ${text}`);
      }
    }
  });
}

test("a cursor of no page is refused", async () => {
  // These go on after any name: an account, a request, a model.
  const anyName = ["listAccounts", "listRequests", "showLink", "sumUsage"];
  const lists = operatorActions.filter(({ id, input }) => "after" in input && !anyName.includes(id));
  for (const action of lists) {
    const [method, url, body] = requestOf(action, rightJson(action.input, ["after"]));
    const answer = await operator.ask(method, url, body === undefined ? {} : { body });
    assert.match(refused(answer, 400, "invalid_value"), /^after must be the `next` of the page/, action.id);
  }
});
