/** Dependencies of the routes of the portal's API. */
import type { Logger } from "pino";
import { OperatorActions } from "../../accounts/operator-actions.ts";
import { PortalActions, type Viewer } from "../../accounts/portal-actions.ts";
import { nobody } from "../../actors.ts";
import type { Catalog, Model } from "../../chat/catalog.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { Store } from "../../store/store.ts";
import type { AccountFeed } from "../api/account-feed.ts";
import type { ChatService } from "../public/chat-service.ts";
import type { PortalSignIn } from "./sign-in.ts";

export interface PortalDependencies {
  store: Store;
  ledger: Ledger;
  catalog: Catalog;
  /** The chat requests of the process, those of the public listener included. */
  chat: Pick<ChatService, "serve">;
  /** The live state of accounts. */
  accounts: Pick<AccountFeed, "follow">;
  logger: Logger;
  signIn: PortalSignIn;
  actions: PortalActions;
  /** `listen.url`: the URL of the public API for callers. */
  publicUrl(): string | null;
  /** The zone of the configuration, for local days. */
  timezone(): string;
  /** The URL for callers on this machine. */
  localUrl: string;
}

/** No action of the portal needs the operator token. */
function noToken(): Promise<string> {
  throw new Error("the portal has no operator token");
}

/** Returns the models that the key of a session may use. */
export function usableModels(catalog: Catalog, { key, plan }: Viewer): Model[] {
  return plan === null ? [] : catalog.usable(key, plan);
}

export function portalActions({
  store,
  ledger,
  catalog,
  timezone,
}: Pick<PortalDependencies, "store" | "ledger" | "catalog" | "timezone">): PortalActions {
  const modelIds = () => catalog.all().map(({ id }) => id);
  return new PortalActions({
    store,
    usableModels: (viewer) => usableModels(catalog, viewer).map(({ id }) => id),
    operator: new OperatorActions({ store, ledger, modelIds, actor: nobody, timezone, token: noToken }),
  });
}
