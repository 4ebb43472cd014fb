/** What the routes of the portal's API depend on. */
import type { Logger } from "pino";
import type { Catalog } from "../../chat/catalog.ts";
import type { Ledger } from "../../ledger/batcher.ts";
import type { Store } from "../../store/store.ts";
import type { ChatService } from "../public/chat-service.ts";
import type { PortalSignIn } from "./sign-in.ts";

export interface PortalDependencies {
  store: Store;
  ledger: Ledger;
  catalog: Catalog;
  /** The chat requests of the process, those of the public listener included. */
  chat: Pick<ChatService, "serve">;
  logger: Logger;
  signIn: PortalSignIn;
  /** `listen.url`: the URL of the public API for callers. */
  publicUrl(): string | null;
  /** The URL for callers on this machine. */
  localUrl: string;
}
