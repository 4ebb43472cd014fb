/** The portal of a service, if it is configured: its listener, and how reloads apply to it. */
import { type InvitationSettings, Invitations } from "../accounts/invitations.ts";
import { Joins } from "../accounts/joins.ts";
import { PortalSessions } from "../accounts/portal-sessions.ts";
import { personKeysDefault } from "../accounts/portal-viewer.ts";
import type { Config } from "../config/load.ts";
import { type PortalConfig, portalNames } from "../config/portal.ts";
import { invariant } from "../errors.ts";
import { AllowedHosts, portalRemedy } from "../http/api/allowed-hosts.ts";
import type { ApiApp } from "../http/api/app.ts";
import { Connections } from "../http/connections.ts";
import { bindOrExplain, clientUrl, listenOn } from "../http/listening.ts";
import { createPortalServer } from "../http/portal/server.ts";
import type { ChatService } from "../http/public/chat-service.ts";
import type { PublicDependencies } from "../http/public/server.ts";
import type { Jobs } from "../jobs.ts";
import type { PersonSignIn } from "../sign-in/person-sign-in.ts";
import type { LiveTelemetry } from "../telemetry/live-telemetry.ts";
import { portalConnectionLimits } from "./open-files.ts";
import { unrecordedUse } from "./sign-in.ts";
import { webFiles } from "./web-bundle.ts";

interface PortalDependencies extends Omit<PublicDependencies, "observers"> {
  version: string;
  chat: ChatService;
  live: Pick<LiveTelemetry, "refusalsOf">;
  jobs: Jobs;
  /** URL of the public API for clients on this machine. */
  localUrl: string;
  /** The operator token, which keys the hashes of sessions. */
  token: string;
  /** Signing in with OpenID Connect, and invited people. */
  people: PersonSignIn;
  /** How invitations are given out. */
  invitations(): InvitationSettings;
}

export class Portal {
  readonly #app: ApiApp;
  readonly #connections: Connections;
  readonly #config: PortalConfig;
  #publicUrl: string | null;
  /** For a browser on this machine. Null until it listens. */
  url: string | null = null;
  #timezone: string;
  #personKeys: Config["personKeys"];
  #sendsMail: boolean;

  constructor(
    { listen, portal, limits, timezone, personKeys, events }: Config,
    { token, invitations: settings, ...dependencies }: PortalDependencies,
  ) {
    invariant(portal !== null, "the portal is configured");
    this.#config = portal;
    this.#timezone = timezone;
    this.#personKeys = personKeys;
    this.#sendsMail = events?.mail != null;
    this.#publicUrl = listen.url;
    this.#connections = new Connections(portalConnectionLimits(limits));
    const { store, logger, people } = dependencies;
    const sessions = new PortalSessions(store, token, unrecordedUse(logger), people);
    const ofPeople = { store, token: async () => token, settings };
    const invitations = new Invitations(ofPeople);
    this.#app = createPortalServer({
      ...dependencies,
      sessions,
      invitations,
      joins: new Joins({ ...ofPeople, invitations }),
      issuer: dependencies.people,
      acceptsKeys: portal.keys,
      personKeys: (plan) => this.#personKeys.get(plan ?? "") ?? personKeysDefault,
      sendsMail: () => this.#sendsMail,
      ownUrl: () => portal.url,
      allowedHosts: new AllowedHosts(portalNames(portal), portalRemedy),
      connections: this.#connections,
      publicUrl: () => this.#publicUrl,
      timezone: () => this.#timezone,
      readPages: webFiles("portal"),
    });
  }

  /** Resolves with the URL. */
  async listen(): Promise<string> {
    const { host, url } = this.#config;
    const boundUrl = await bindOrExplain("portal", this.#config, (at) => listenOn(this.#app, at));
    this.url = url ?? clientUrl(host, boundUrl);
    return this.url;
  }

  /** Applies a reload. */
  configure({ listen, limits, timezone, personKeys, events }: Config): void {
    this.#personKeys = personKeys;
    this.#sendsMail = events?.mail != null;
    this.#publicUrl = listen.url;
    this.#timezone = timezone;
    this.#connections.configure(portalConnectionLimits(limits));
  }

  async close(): Promise<void> {
    await this.#app.close();
  }
}
