/** Dependencies of the routes of the portal's API. */
import type { Logger } from "pino";
import { OperatorActions } from "../../accounts/operator-actions.ts";
import { PortalActions } from "../../accounts/portal-actions.ts";
import { authorityOf, type PersonKeys, type Viewer } from "../../accounts/portal-viewer.ts";
import type { SignedInPeople } from "../../accounts/signed-in-people.ts";
import { nobody } from "../../actors.ts";
import type { Catalog, Model } from "../../chat/catalog.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { Store } from "../../store/store.ts";
import type { LiveTelemetry } from "../../telemetry/live-telemetry.ts";
import type { ChatService } from "../public/chat-service.ts";
import type { NewLinks } from "./new-links.ts";
import type { PortalSignIn } from "./sign-in.ts";

export interface PortalDependencies {
  store: Store;
  ledger: Ledger;
  catalog: Catalog;
  /** The chat requests of the process, those of the public listener included. */
  chat: Pick<ChatService, "serve">;
  logger: Logger;
  live: Pick<LiveTelemetry, "refusalsOf">;
  signIn: PortalSignIn;
  links: NewLinks;
  actions: PortalActions;
  /** `listen.url`: the URL of the public API for callers. */
  publicUrl(): string | null;
  /** The zone of the configuration, for local days. */
  timezone(): string;
  people: Pick<SignedInPeople, "holdersAmong">;
  /** The rights over keys of people with an account on a plan. */
  personKeys(plan: string | undefined): PersonKeys;
  /** Whether the service sends mail about accounts. */
  sendsMail(): boolean;
  /** The URL for callers on this machine. */
  localUrl: string;
}

/** No action of the portal needs the operator token. */
function noToken(): Promise<string> {
  throw new Error("the portal has no operator token");
}

/** Returns the models that the key of a session, or its person, may use. */
export function usableModels(catalog: Catalog, viewer: Viewer): Model[] {
  return viewer.plan === null ? [] : catalog.usable(authorityOf(viewer), viewer.plan);
}

export function portalActions(
  dependencies: Omit<PortalDependencies, "signIn" | "actions" | "links">,
): PortalActions {
  const { store, ledger, catalog, timezone, people, personKeys, live } = dependencies;
  return new PortalActions({
    store,
    people,
    personKeys,
    refusalsOf: (account) => live.refusalsOf(account),
    usableModels: (viewer) => usableModels(catalog, viewer).map(({ id }) => id),
    operator: new OperatorActions({
      store,
      ledger,
      modelIds: () => catalog.ids(),
      actor: nobody,
      timezone,
      token: noToken,
    }),
  });
}
