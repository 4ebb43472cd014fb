/**
 * The metrics of the service, in the text format of Prometheus. Names begin with `inkwell_` and
 * contain their unit. The standard metrics of the process and of Node (`process_*`, `nodejs_*`)
 * are included.
 *
 * The values of every label are bounded: no label has accounts, keys, requests, or models that the
 * catalog lacks.
 */
import type { Catalog } from "../chat/catalog.ts";
import type { EngineLoad, NoticeKind, Usage } from "../chat/engine.ts";
import type { Charge } from "../chat/generate.ts";
import type { ClockState } from "../ledger/clock.ts";
import type { Committed } from "../ledger/ledger.ts";
import type { Ending } from "../ledger/rows.ts";
import { inTime } from "../retry.ts";
import type { AuditRecord } from "../store/audit-report.ts";
import type { NodeView } from "../store/nodes.ts";
import type { HoldTotals } from "../store/store.ts";
import { microPerCredit } from "../units.ts";
import { EventMetrics } from "./event-metrics.ts";
import { Instruments, type MetricValues } from "./instruments.ts";
import type { RequestObserver, RequestRecord } from "./request-record.ts";

/** State of the service that is read at each scrape. */
interface MetricsSources {
  version: string;
  /** Requests that are being answered. */
  running(): number;
  /** Connections of the public listener. */
  connections: { readonly count: number; readonly max: number };
  /** Request bodies that are being received or checked. */
  uploads: { readonly count: number; readonly bytes: number };
  catalog: Catalog;
  /** Rejects if the store does not respond. */
  holdTotals(): Promise<HoldTotals>;
  /** The recorded audit. Rejects if the store does not respond. */
  lastAudit(): Promise<AuditRecord | null>;
  /** Processes on the same database, this one included. */
  nodes(): readonly NodeView[];
  /** The clock of the ledger at the last look. */
  clock(): ClockState;
  /** Charges of ended answers that wait for the store. */
  lateCharges(): number;
}

const paying = ["base", "overage", "additional"] as const;

const listeners = ["public", "operator", "portal"] as const;
export type Listener = (typeof listeners)[number];

/** `total`: the limit of all connections. `address`: the limit of one address. */
const refusalReasons = ["total", "address"] as const;
export type ConnectionRefusal = (typeof refusalReasons)[number];

const signInResultsOfBoth = [
  "signed_in",
  "too_many",
  "insecure",
  "failed",
  "not_admitted",
  "issuer_unavailable",
] as const;

/** Results of signing in, by the listener. */
const signInResults = {
  operator: [...signInResultsOfBoth, "wrong_token", "wrong_code"],
  portal: [...signInResultsOfBoth, "wrong_key", "wrong_code"],
} as const;
type SignInListener = keyof typeof signInResults;
export type SignInResult = (typeof signInResults)[SignInListener][number];

export class Metrics implements RequestObserver {
  readonly #make = new Instruments();
  readonly events = new EventMetrics(this.#make);
  readonly #requests = this.#make.counter(
    "inkwell_requests_total",
    "Requests to the public API. The status is `none` if the client left first. The code is empty unless the request was refused.",
    ["endpoint", "status", "code"],
  );
  readonly #requestSeconds = this.#make.histogram(
    "inkwell_request_duration_seconds",
    "Time from the head of a request to the end of its answer. model is empty if no model took the request.",
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600],
    ["endpoint", "model"],
  );
  readonly #refusedBytes = this.#make.counter(
    "inkwell_refused_bytes_total",
    "Body bytes of chat requests that were refused, or left by their client before they were accepted.",
  );
  readonly #refusedSeconds = this.#make.counter(
    "inkwell_refused_seconds_total",
    "Processor time of the main thread for these requests.",
  );
  readonly #firstTokenSeconds = this.#make.histogram(
    "inkwell_time_to_first_token_seconds",
    "Time from the head of a request to the first token of its stream.",
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
    ["model"],
  );
  readonly #tokens = this.#make.counter(
    "inkwell_tokens_total",
    "Tokens of settled requests. The kinds do not overlap: their sum is all tokens.",
    ["model", "kind"],
  );
  readonly #charged = this.#make.counter(
    "inkwell_charged_credits_total",
    "Charged credits by bucket and ending. expired: charged for the last checkpoint of a hold.",
    ["bucket", "ending"],
  );
  readonly #settlements = this.#make.counter(
    "inkwell_settled_requests_total",
    "Settled requests by ending.",
    ["model", "ending"],
  );
  readonly #shortfall = this.#make.counter(
    "inkwell_shortfall_credits_total",
    "Cost of requests in credits that no bucket could pay.",
  );
  readonly #uncharged = this.#make.counter(
    "inkwell_uncharged_tokens_total",
    "Tokens that an engine reported beyond what the hold paid for. They are not charged.",
    ["model", "kind"],
  );
  readonly #estimated = this.#make.counter(
    "inkwell_estimated_usages_total",
    "Requests whose tokens were counted here, because the counts of the engine were missing, absurd, or cut off with the answer.",
    ["model", "reason"],
  );
  readonly #notices = this.#make.counter(
    "inkwell_upstream_notices_total",
    "Answers of upstream servers with something odd: counts, endings, refused fields.",
    ["model", "kind"],
  );
  readonly #unsettled = this.#make.counter(
    "inkwell_unsettled_requests_total",
    "Requests whose charge was given up. Their last checkpoint is charged when the hold expires.",
  );
  readonly #lateCharges = this.#make.gauge(
    "inkwell_late_charges",
    "Charges of ended answers that wait for the store.",
  );
  readonly #expired = this.#make.counter(
    "inkwell_expired_holds_total",
    "Holds that were ended by their last checkpoint, because their process died or could not reach the store.",
  );
  readonly #commitSeconds = this.#make.histogram(
    "inkwell_ledger_commit_duration_seconds",
    "Time from handing a batch to the store until it is on disk.",
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
  );
  readonly #commitOperations = this.#make.histogram(
    "inkwell_ledger_commit_operations",
    "Operations in one commit.",
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
  );
  readonly #eventLoopSeconds = this.#make.histogram(
    "inkwell_event_loop_delay_seconds",
    "Delay of the event loop, measured every 20 ms with a timer.",
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  );
  readonly #lostSpans = this.#make.counter(
    "inkwell_lost_spans_total",
    "Spans of traces that were dropped, because the collector refused them or was too slow.",
  );
  readonly #auditProblems = this.#make.most(
    "inkwell_audit_problems",
    "Problems that the last recorded audit found; NaN before the first one.",
  );
  readonly #auditSeconds = this.#make.most(
    "inkwell_audit_timestamp_seconds",
    "Time of the last recorded audit; NaN before the first one.",
  );
  readonly #jobRuns = this.#make.counter(
    "inkwell_job_runs_total",
    "Ended runs of the regular work of this process, by outcome.",
    ["name", "outcome"],
  );
  readonly #jobSuccessSeconds = this.#make.least(
    "inkwell_job_last_success_timestamp_seconds",
    "Time of the last successful run of the job, or of its start.",
    // Prometheus gives the label `job` to each scraped metric.
    ["name"],
  );
  readonly #build = this.#make.most("inkwell_build_info", "Always 1. The label is the version.", ["version"]);
  readonly #running = this.#make.gauge("inkwell_running_requests", "Chat requests that are being answered.");
  readonly #connections = this.#make.gauge("inkwell_connections", "Open connections of the public listener.");
  readonly #connectionsMax = this.#make.gauge(
    "inkwell_connections_max",
    "Most connections that the public listener accepts.",
  );
  readonly #refusedConnections = this.#make.counter(
    "inkwell_refused_connections_total",
    "Connections that were refused because too many were open, in total or from one address.",
    ["listener", "reason"],
  );
  readonly #uploads = this.#make.gauge(
    "inkwell_uploads",
    "Request bodies that are being received or checked.",
  );
  readonly #uploadBytes = this.#make.gauge("inkwell_upload_bytes", "Bytes reserved for these bodies.");
  readonly #nodes = this.#make.most("inkwell_nodes", "Processes on the same database.");
  readonly #configDiffers = this.#make.most(
    "inkwell_config_differs",
    "Plans, models and prices that differ on another live node on the same database; 0 if all nodes agree.",
  );
  readonly #clockFollowed = this.#make.least(
    "inkwell_clock_followed",
    "1 if the ledger follows the clock; 0 if the clock is more than a day beyond uptime.",
  );
  readonly #clockOffset = this.#make.least(
    "inkwell_clock_offset_seconds",
    "The clock minus ledger time. Below 0, ledger time stands.",
  );
  readonly #holds = this.#make.most("inkwell_open_holds", "Open holds.");
  readonly #held = this.#make.most("inkwell_held_credits", "Credits in open holds.");
  readonly #ready = this.#make.least("inkwell_model_ready", "1 if the model is ready, otherwise 0.", [
    "model",
  ]);
  readonly #failingServers = this.#make.most(
    "inkwell_model_failing_servers",
    "Upstream servers of the model that do not respond or keep failing.",
    ["model"],
  );
  readonly #serversOutOfCredit = this.#make.most(
    "inkwell_model_servers_out_of_credit",
    "Upstream servers of the model at which the account of the operator is empty.",
    ["model"],
  );
  readonly #engineRunning = this.#make.gauge(
    "inkwell_engine_running_requests",
    "Requests that the engine decodes together: the size of its batch.",
    ["model"],
  );
  readonly #engineWaiting = this.#make.gauge(
    "inkwell_engine_waiting_requests",
    "Requests in the queue of the engine.",
    ["model"],
  );
  readonly #enginePaused = this.#make.gauge(
    "inkwell_engine_paused_requests",
    "Requests that gave their place in the batch to another account and continue later.",
    ["model"],
  );
  readonly #oldestWait = this.#make.most(
    "inkwell_queue_oldest_wait_seconds",
    "Time that the oldest request in the queue of the engine has waited; 0 if the queue is empty.",
    ["model"],
  );
  readonly #starved = this.#make.most(
    "inkwell_queue_starved_seconds",
    "Longest time that an account with requests in the queue has had no place in the batch.",
    ["model"],
  );
  readonly #batchRequests = this.#make.histogram(
    "inkwell_engine_batch_requests",
    "Requests in one step of the decoder. A step makes a token for each request or reads a part of a prompt.",
    [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256],
    ["model"],
  );
  readonly #modelGauges = [
    this.#ready,
    this.#failingServers,
    this.#serversOutOfCredit,
    this.#engineRunning,
    this.#engineWaiting,
    this.#enginePaused,
    this.#oldestWait,
    this.#starved,
  ];
  readonly #reloadSuccessful = this.#make.least(
    "inkwell_config_last_reload_successful",
    "1 if the last reload of the configuration succeeded, or if there was none; otherwise 0.",
  );
  readonly #reloadSuccessSeconds = this.#make.least(
    "inkwell_config_last_reload_success_timestamp_seconds",
    "Time of the last successful reload of the configuration, or of the start.",
  );
  readonly #signIns = this.#make.counter(
    "inkwell_sign_ins_total",
    "Attempts to sign in to the console (`operator`) and to the portal, by their result.",
    ["listener", "result"],
  );
  #sources: MetricsSources | null = null;

  constructor() {
    // Zero from the start, so that the first refusal is an increase.
    for (const listener of listeners) {
      for (const reason of refusalReasons) this.#refusedConnections.inc({ listener, reason }, 0);
    }
    for (const [listener, results] of Object.entries(signInResults)) {
      for (const result of results) this.#signIns.inc({ listener, result }, 0);
    }
    this.#auditProblems.set(Number.NaN);
    this.#auditSeconds.set(Number.NaN);
  }

  /** Sets the sources of the gauges. Call once, when the service exists. */
  observe(sources: MetricsSources): void {
    this.#build.set({ version: sources.version }, 1);
    this.#sources = sources;
  }

  finished(record: RequestRecord): void {
    const { path, status, code, durationMs, firstTokenMs, acceptedModel: model, refused, charge } = record;
    if (charge !== null) this.charged(charge);
    const endpoint = path ?? "other";
    this.#requests.inc({ endpoint, status: String(status ?? "none"), code: code ?? "" });
    this.#requestSeconds.observe({ endpoint, model: model ?? "" }, durationMs / 1000);
    if (refused !== null) {
      this.#refusedBytes.inc(refused.bytes);
      this.#refusedSeconds.inc(refused.ms / 1000);
    }
    if (firstTokenMs !== null && model !== null) {
      this.#firstTokenSeconds.observe({ model }, firstTokenMs / 1000);
    }
  }

  chargedLate(_record: RequestRecord, charge: Charge): void {
    this.charged(charge);
  }

  charged(charge: Charge): void {
    const { model, ending, usage, uncharged, paid, paidBefore, shortfallMicro, shortfallBeforeMicro } =
      charge;
    this.#settlements.inc({ model, ending });
    this.#uncharged.inc({ model, kind: "prompt" }, uncharged.promptTokens);
    this.#uncharged.inc({ model, kind: "completion" }, uncharged.completionTokens);
    for (const [kind, count] of [
      ["prompt", usage.promptTokens - usage.cachedTokens],
      ["cached_prompt", usage.cachedTokens],
      ["completion", usage.completionTokens - usage.reasoningTokens],
      ["reasoning", usage.reasoningTokens],
    ] as const) {
      this.#tokens.inc({ model, kind }, count);
    }
    for (const bucket of paying) {
      // The expiry of the hold has counted its part with the ending `expired`.
      const takenNow = paid[bucket] - (paidBefore?.[bucket] ?? 0);
      this.#charged.inc({ bucket, ending }, takenNow / microPerCredit);
    }
    this.#shortfall.inc((shortfallMicro - shortfallBeforeMicro) / microPerCredit);
    if (usage.estimated) this.#estimated.inc({ model, reason: estimatedBecause(usage, ending) });
  }

  noticed(model: string, kind: NoticeKind): void {
    this.#notices.inc({ model, kind });
  }

  unsettled(): void {
    this.#unsettled.inc();
  }

  committed({ operations, expired, durationMs }: Committed): void {
    this.#commitSeconds.observe(durationMs / 1000);
    this.#commitOperations.observe(operations);
    this.#expired.inc(expired.length);
    for (const receipt of expired) {
      for (const bucket of paying) {
        this.#charged.inc({ bucket, ending: "expired" }, receipt[`${bucket}Micro` as const] / microPerCredit);
      }
      this.#shortfall.inc(receipt.shortfallMicro / microPerCredit);
    }
  }

  connectionRefused(listener: Listener, reason: ConnectionRefusal): void {
    this.#refusedConnections.inc({ listener, reason });
  }

  signedIn(listener: SignInListener, result: SignInResult): void {
    this.#signIns.inc({ listener, result });
  }

  decoded(model: string, requests: number): void {
    this.#batchRequests.observe({ model }, requests);
  }

  eventLoopDelayed(delayMs: number): void {
    this.#eventLoopSeconds.observe(delayMs / 1000);
  }

  lostSpans(count: number): void {
    this.#lostSpans.inc(count);
  }

  jobStarted(name: string): void {
    for (const outcome of ["ok", "failed"]) this.#jobRuns.inc({ name, outcome }, 0);
    this.#jobSuccessSeconds.set({ name }, Date.now() / 1000);
  }

  jobEnded(name: string, outcome: "ok" | "failed"): void {
    this.#jobRuns.inc({ name, outcome });
    if (outcome === "ok") this.#jobSuccessSeconds.set({ name }, Date.now() / 1000);
  }

  /** Call at the start too: the configuration has been loaded then. */
  reloaded(successful: boolean, atMs: number): void {
    this.#reloadSuccessful.set(successful ? 1 : 0);
    if (successful) this.#reloadSuccessSeconds.set(atMs / 1000);
  }

  get contentType(): string {
    return this.#make.registry.contentType;
  }

  /** Of this process. Each reading begins the delays of the event loop anew, as `text` does. */
  async values(): Promise<MetricValues> {
    await this.#updateAll();
    return await this.#make.registry.getMetricsAsJSON();
  }

  /** Of this process. */
  async text(): Promise<string> {
    await this.#updateAll();
    return await this.#make.registry.metrics();
  }

  async #updateAll(): Promise<void> {
    await Promise.all([this.#sources && this.#update(this.#sources), this.events.update()]);
  }

  async #update(sources: MetricsSources): Promise<void> {
    this.#running.set(sources.running());
    this.#connections.set(sources.connections.count);
    this.#connectionsMax.set(sources.connections.max);
    this.#uploads.set(sources.uploads.count);
    this.#uploadBytes.set(sources.uploads.bytes);
    const nodes = sources.nodes();
    this.#nodes.set(nodes.length);
    this.#configDiffers.set(new Set(nodes.flatMap((node) => node.differs)).size);
    const { place, ledgerMs, clockMs } = sources.clock();
    this.#clockFollowed.set(place === "ahead" ? 0 : 1);
    this.#clockOffset.set((clockMs - ledgerMs) / 1000);
    this.#lateCharges.set(sources.lateCharges());
    // The other metrics are useful even if the store does not respond. /readyz reports that.
    const [totals, audit] = await Promise.all([
      inTime(sources.holdTotals()).catch(() => ({ holds: Number.NaN, heldMicro: Number.NaN })),
      inTime(sources.lastAudit()).catch(() => null),
    ]);
    this.#holds.set(totals.holds);
    this.#held.set(totals.heldMicro / microPerCredit);
    // Without the store, that of the last scrape stays.
    if (audit !== null) {
      this.#auditProblems.set(audit.problems);
      this.#auditSeconds.set(audit.checkedMs / 1000);
    }
    // A model that was removed has no gauges any more.
    for (const gauge of this.#modelGauges) gauge.reset();
    for (const { id: model, engine } of sources.catalog.all()) {
      const load: EngineLoad = engine.load?.() ?? { running: 0, waiting: 0 };
      // So that the first such tokens are an increase.
      for (const kind of ["prompt", "completion"]) this.#uncharged.inc({ model, kind }, 0);
      this.#ready.set({ model }, engine.state === "ready" ? 1 : 0);
      const failing = engine.servers?.()?.filter(({ state }) => state !== "ok") ?? [];
      this.#failingServers.set({ model }, failing.length);
      const isEmpty = failing.filter(({ state }) => state === "out_of_credit");
      this.#serversOutOfCredit.set({ model }, isEmpty.length);
      this.#engineRunning.set({ model }, load.running);
      this.#engineWaiting.set({ model }, load.waiting);
      this.#enginePaused.set({ model }, load.paused ?? 0);
      this.#oldestWait.set({ model }, (load.oldestWaitMs ?? 0) / 1000);
      this.#starved.set({ model }, (load.starvedMs ?? 0) / 1000);
    }
  }
}

/**
 * Returns why the usage was estimated. An engine sends its counts at the end of the answer, so
 * they cannot arrive if the answer was cut off. `missing` needs attention: the answer is complete,
 * but its counts are missing.
 */
function estimatedBecause(
  { absurd = false, endedHere = false }: Usage,
  ending: Ending,
): "absurd" | "cut" | "missing" {
  if (absurd) return "absurd";
  if (endedHere) return "cut";
  return ending === "stop" || ending === "length" ? "missing" : "cut";
}
