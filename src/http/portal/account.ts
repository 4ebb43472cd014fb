/** `/api/account`: the account, the key of the session, its rights and the balance. */
import Type from "typebox";
import { balanceObject, refills, refillsOf } from "../../accounts/balance-object.ts";
import {
  closed,
  fieldsFor,
  isoTime,
  isoTimeOrNull,
  limitsSchema,
  objectFor,
  orNull,
  text,
} from "../../accounts/json-objects.ts";
import { limitsLeftObject, limitsLeftSchema } from "../../accounts/limits-left-object.ts";
import { balance, keyObject, ownMailObject } from "../../accounts/operator-objects.ts";
import { limitsObject } from "../../accounts/plan-limits.ts";
import { whyNoNewKeys } from "../../accounts/portal-rights.ts";
import type { PortalSession } from "../../accounts/portal-sessions.ts";
import { accountOf, authorityOf, isPerson, type PersonKeys } from "../../accounts/portal-viewer.ts";
import { spendingCaps, spendingCapsObject } from "../../accounts/spending-caps-object.ts";
import { ownAccountActions } from "../../actions/portal-runs.ts";
import { type BalanceView, balanceOf } from "../../ledger/balance.ts";
import { keyAt } from "../../ledger/key-facts.ts";
import { refusalOf } from "../../ledger/refusals.ts";
import { accountStates, portalRights } from "../../ledger/rows.ts";
import { endOf } from "../../ledger/windows.ts";
import type { Contact } from "../../store/contacts.ts";
import type { EpochMs } from "../../units.ts";
import { actionRoutes } from "../api/action-routes.ts";
import { type ApiApp, route } from "../api/app.ts";
import { isOnLoopback } from "../api/sign-in.ts";
import { contextFor } from "./context.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

interface ShownAccount {
  session: PortalSession;
  allowed: PersonKeys | null;
  /** Ledger time. */
  atMs: EpochMs;
  /** Elapsed time. */
  nowMs: EpochMs;
  balance: BalanceView;
  publicUrl: string | null;
  /** Null: no mail is sent about accounts. */
  contact: Contact | null;
}

const rights = closed({
  keys: Type.Enum([...portalRights], {
    description: "`own`: sees and rotates this key only. `account`: manages all keys of the account",
  }),
  can_create_keys: Type.Boolean(),
  why_not: orNull(Type.String({ description: "why the session cannot create keys" })),
  most_keys: orNull(
    Type.Integer({ minimum: 0, description: "of a person: how many keys may work at the same time" }),
  ),
  key_life: orNull(Type.String({ description: "of a person: the longest life of a key, ISO 8601" })),
  latest_expiry: orNull(
    Type.String({ format: "date-time", description: "of a person: the latest end of a key made now" }),
  ),
});

/** The state of an account, and what it gets by itself. */
const accountState = fieldsFor<BalanceView>()({
  state: [Type.Enum([...accountStates]), ({ state }) => state],
  ends_at: [
    orNull(Type.String({ format: "date-time", description: "the time at which the account closes" })),
    ({ endsMs }) => isoTimeOrNull(endsMs),
  ],
  refills: [refills, refillsOf],
  spending_caps: [spendingCaps, ({ caps }) => spendingCapsObject(caps)],
  plan: [
    Type.Object(
      { id: text, limits: limitsSchema },
      {
        additionalProperties: false,
        description: "`limits` count for all keys of the account together, those of a key in addition",
      },
    ),
    ({ plan, limits }) => ({ id: plan, limits: limitsObject(limits) }),
  ],
});

export const accountStateObject = objectFor<BalanceView>("AccountState")(accountState);

export const ownAccountObject = objectFor<ShownAccount>("OwnAccount")({
  account: [text, ({ session }) => accountOf(session)],
  state: [accountState.state[0], ({ balance }) => balance.state],
  ends_at: [accountState.ends_at[0], ({ balance }) => isoTimeOrNull(balance.endsMs)],
  refills: [refills, ({ balance }) => refillsOf(balance)],
  spending_caps: [spendingCaps, ({ balance }) => spendingCapsObject(balance.caps)],
  plan: [accountState.plan[0], ({ balance }) => accountState.plan[1](balance)],
  limits: [limitsLeftSchema, ({ session, balance, nowMs }) => limitsLeftObject(balance, session, nowMs)],
  key: [orNull(keyObject.schema), ({ session }) => (isPerson(session) ? null : keyObject.of(session.key))],
  rights: [
    rights,
    ({ session, allowed, atMs }) => {
      const own = authorityOf(session);
      const why =
        allowed?.most === 0
          ? refusalOf({ kind: "too_many_keys", of: "working", most: 0 }).message
          : whyNoNewKeys(own, session.account.state);
      return {
        keys: own.portal,
        can_create_keys: why === null,
        why_not: why,
        most_keys: allowed?.most ?? null,
        key_life: allowed?.life ?? null,
        latest_expiry: allowed?.life == null ? null : isoTime(endOf(allowed.life, atMs)),
      };
    },
  ],
  balance: [balance, (shown) => balanceObject(shown.balance)],
  mail: [
    orNull(ownMailObject.schema),
    ({ session, contact }) =>
      contact?.email == null || authorityOf(session).portal !== "account"
        ? null
        : ownMailObject.of({ contact }),
  ],
  public_url: [
    orNull(Type.String({ description: "the URL of the API, as far as the service knows it" })),
    ({ publicUrl }) => publicUrl,
  ],
});

export function accountRoutes(app: ApiApp, dependencies: PortalDependencies): void {
  const { store, actions, publicUrl, localUrl, sendsMail } = dependencies;
  actionRoutes(app, ownAccountActions, contextFor(dependencies));
  app.get(
    "/api/account",
    route("showAccount", {
      summary: "Show the account, the key of the session, its rights and the balance",
      description:
        "`balance` is that of `GET /v1/balance`. A suspended account can be seen, but not used. `key` is null in the session of a person. `mail` is null if no mail about the account is sent, or the session may not choose it.",
      response: { 200: ownAccountObject.schema },
    }),
    async (request) => {
      const session = sessionOf(request);
      const snapshot = await store.accountSnapshot(accountOf(session));
      const { atMs, nowMs } = store.times();
      return ownAccountObject.of({
        session: isPerson(session) ? session : { ...session, key: keyAt(session.key, atMs) },
        allowed: actions.allowedKeys(session),
        atMs,
        nowMs,
        balance: balanceOf(snapshot),
        contact: sendsMail() ? await store.contact(accountOf(session)) : null,
        // Somebody on this machine can use the local URL, and nobody else.
        publicUrl: publicUrl() ?? (isOnLoopback(`http://${request.raw.headers.host}`) ? localUrl : null),
      });
    },
  );
}
