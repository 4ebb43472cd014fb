/** Dependencies of the routes of the operator API. */
import type { Logger } from "pino";
import type { InvitationSettings } from "../../accounts/invitations.ts";
import type { Currency } from "../../accounts/money.ts";
import type { RequestStops } from "../../accounts/request-stops.ts";
import type { PersonRoles } from "../../accounts/signed-in-people.ts";
import type { AppliedPlansReport, ReloadPreview, ReloadReport } from "../../config/changes.ts";
import type { Config } from "../../config/load.ts";
import type { ClockPlace } from "../../ledger/clock.ts";
import type { TellAccess } from "../../ledger/events.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { WantedEvents } from "../../store/events.ts";
import type { NodeView } from "../../store/nodes.ts";
import type { Store } from "../../store/store.ts";
import type { LiveTelemetry } from "../../telemetry/live-telemetry.ts";
import type { Credits } from "../../units.ts";
import type { ChatService } from "../public/chat-service.ts";
import type { ReadRate } from "../read-rate.ts";
import type { LiveState } from "./live-state.ts";
import type { OperatorSignIn } from "./operator-sign-in.ts";
import type { RunningJson } from "./request-object.ts";

/** `read_only`: the disk is full, for example. */
export const storeStates = ["ok", "unreachable", "read_only"] as const;

export interface Health {
  ready: boolean;
  store: (typeof storeStates)[number];
  /** `wrong`: the ledger continues at the trusted time. Requests are answered. */
  clock: ClockPlace;
  /** True while the service stops. */
  draining: boolean;
  /** Sentences for the operator about superseded plans and models that do not work. */
  warnings: string[];
}

export interface AdminDependencies {
  store: Store;
  ledger: Ledger;
  /** Models that keys may name. */
  modelIds(): readonly string[];
  /** The chat requests of the process, those of the public listener included. */
  chat: Pick<ChatService, "serve">;
  /** The URLs of the API and of the portal, if there is one. */
  urls(): { api: string; portal: string | null };
  /** Of all processes of the service, like the chat requests that they answer. */
  liveState(): Promise<LiveState>;
  requests(): Promise<RunningJson[]>;
  live: Pick<LiveTelemetry, "refusalsOf">;
  /** `answers`: whether the database does. */
  health(answers: boolean): Promise<Health>;
  stops: Pick<RequestStops, "stopRequest">;
  signIn: OperatorSignIn;
  /** Reads of live pages, by session. */
  reads: Pick<ReadRate, "count">;
  logger: Pick<Logger, "warn">;
  /** The processes on the same database, including this process. */
  nodes(): readonly NodeView[];
  /** Reloads the configuration. Throws a refusal if it cannot be used. */
  reload(by: string): Promise<ReloadReport>;
  /** Returns what a reload would change. Throws a refusal if the configuration cannot be used. */
  previewReload(): Promise<ReloadPreview>;
  /** The zone of the configuration, for local days. */
  timezone(): string;
  /** The price of credits, for reports. Default: reports have no money. */
  currency?(): Currency | null;
  /** Whole credits that support may give in a day. */
  supportCredits?(): Credits;
  /** The operator token. */
  token(): Promise<string>;
  /** The receivers of events in the configuration. */
  endpoints(): readonly WantedEvents[];
  /** How invitations are given out. Default: not at all. */
  invitations?(): InvitationSettings;
  /** The role that the configuration gives to a person now. Default: none. */
  roleNow?: PersonRoles["roleNow"];
  /** Default: nobody hears of a new operator key. */
  tell?: TellAccess;
  /** This node's configuration, as the node last read it. */
  configured(): Pick<Config, "plans" | "personKeys"> & {
    models: readonly Pick<Config["models"][number], "id" | "price">[];
  };
  /**
   * Makes the plans of the configuration current. Throws a refusal while it reloads.
   */
  applyPlans(by: string): Promise<AppliedPlansReport>;
}
