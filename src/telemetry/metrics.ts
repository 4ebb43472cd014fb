/**
 * What the service counts of itself, in the text format of Prometheus. Names begin with `inkwell_`, units are in the
 * names; beside them are the standard ones of the process and of Node (`process_*`, `nodejs_*`).
 *
 * No label has values without bound: no account, no key, no request, and no model that is not in the catalog.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { Catalog } from "../chat/catalog.ts";
import type { EngineLoad, Usage } from "../chat/engine.ts";
import type { Charge } from "../chat/generate.ts";
import type { Committed } from "../ledger/ledger.ts";
import type { Ending } from "../ledger/rows.ts";
import type { NodeView } from "../store/nodes.ts";
import type { HoldTotals } from "../store/store.ts";
import { microPerCredit } from "../units.ts";
import type { ConnectionRefusal } from "./log.ts";
import type { RequestObserver, RequestRecord } from "./request-record.ts";

export interface MetricsSources {
  version: string;
  /** Requests that are being answered. */
  running(): number;
  /** Of the public listener. */
  connections: { readonly count: number; readonly max: number };
  /** Request bodies that are being received or checked. */
  uploads: { readonly count: number; readonly bytes: number };
  catalog: Catalog;
  /** Rejects where the store does not answer. */
  holdTotals(): Promise<HoldTotals>;
  /** Processes on the same database, this one included. */
  nodes(): readonly NodeView[];
  /** Charges that wait for a store that has stayed away. */
  lateCharges(): number;
}

const buckets = {
  requestSeconds: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600],
  firstTokenSeconds: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
  commitSeconds: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
  eventLoopSeconds: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  batchRequests: [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256],
  commitOperations: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
};

const paying = ["base", "overage", "additional"] as const;

export class Metrics implements RequestObserver {
  readonly #registry = new Registry();
  readonly #requests: Counter<"endpoint" | "status" | "code">;
  readonly #requestSeconds: Histogram<"endpoint" | "model">;
  readonly #firstTokenSeconds: Histogram<"model">;
  readonly #tokens: Counter<"model" | "kind">;
  readonly #charged: Counter<"bucket" | "ending">;
  readonly #settlements: Counter<"model" | "ending">;
  readonly #refusedBytes: Counter;
  readonly #refusedSeconds: Counter;
  readonly #shortfall: Counter;
  readonly #estimated: Counter<"model" | "reason">;
  readonly #unsettled: Counter;
  readonly #expired: Counter;
  readonly #commitSeconds: Histogram;
  readonly #commitOperations: Histogram;
  readonly #eventLoopSeconds: Histogram;
  readonly #lostSpans: Counter;
  readonly #auditProblems: Gauge;
  readonly #auditSeconds: Gauge;
  readonly #build: Gauge<"version">;
  readonly #running: Gauge;
  readonly #connections: Gauge;
  readonly #connectionsMax: Gauge;
  readonly #refusedConnections: Counter<"reason">;
  readonly #uploads: Gauge;
  readonly #uploadBytes: Gauge;
  readonly #holds: Gauge;
  readonly #held: Gauge;
  readonly #ready: Gauge<"model">;
  readonly #engineRunning: Gauge<"model">;
  readonly #engineWaiting: Gauge<"model">;
  readonly #enginePaused: Gauge<"model">;
  readonly #oldestWait: Gauge<"model">;
  readonly #starved: Gauge<"model">;
  readonly #nodes: Gauge;
  readonly #configDiffers: Gauge;
  readonly #lateCharges: Gauge;
  readonly #batchRequests: Histogram<"model">;
  #sources: MetricsSources | null = null;

  constructor() {
    const registers = [this.#registry];
    collectDefaultMetrics({ register: this.#registry });
    this.#requests = new Counter({
      name: "inkwell_requests_total",
      help: "Requests of the public API. status is none where the client left first, code empty where nothing was refused.",
      labelNames: ["endpoint", "status", "code"],
      registers,
    });
    this.#requestSeconds = new Histogram({
      name: "inkwell_request_duration_seconds",
      help: "From the head of a request to the end of its answer. model is empty where none took it.",
      labelNames: ["endpoint", "model"],
      buckets: buckets.requestSeconds,
      registers,
    });
    this.#refusedBytes = new Counter({
      name: "inkwell_refused_bytes_total",
      help: "Body bytes of chat requests that were refused or left before they were accepted.",
      registers,
    });
    this.#refusedSeconds = new Counter({
      name: "inkwell_refused_seconds_total",
      help: "Processor time that the main thread spent on these requests.",
      registers,
    });
    this.#firstTokenSeconds = new Histogram({
      name: "inkwell_time_to_first_token_seconds",
      help: "From the head of a request to the first token of its stream.",
      labelNames: ["model"],
      buckets: buckets.firstTokenSeconds,
      registers,
    });
    this.#tokens = new Counter({
      name: "inkwell_tokens_total",
      help: "Tokens of settled requests. The kinds do not overlap: their sum is all tokens.",
      labelNames: ["model", "kind"],
      registers,
    });
    this.#charged = new Counter({
      name: "inkwell_charged_credits_total",
      help: "Credits taken, by the bucket that paid and by how the request ended; expired: for the last checkpoint of a hold.",
      labelNames: ["bucket", "ending"],
      registers,
    });
    this.#settlements = new Counter({
      name: "inkwell_settled_requests_total",
      help: "Requests that were settled, by how they ended.",
      labelNames: ["model", "ending"],
      registers,
    });
    this.#shortfall = new Counter({
      name: "inkwell_shortfall_credits_total",
      help: "Credits that requests cost and nobody could pay.",
      registers,
    });
    this.#estimated = new Counter({
      name: "inkwell_estimated_usages_total",
      help: "Requests whose tokens were counted here, because the engine's own numbers were missing, absurd, or cut off with the answer.",
      labelNames: ["model", "reason"],
      registers,
    });
    this.#unsettled = new Counter({
      name: "inkwell_unsettled_requests_total",
      help: "Requests whose charge was given up; their last checkpoint is charged when the hold expires.",
      registers,
    });
    this.#lateCharges = new Gauge({
      name: "inkwell_late_charges",
      help: "Charges of ended answers that wait for a store that has stayed away.",
      registers,
    });
    this.#expired = new Counter({
      name: "inkwell_expired_holds_total",
      help: "Holds that were ended by their last checkpoint: their process died or could not reach the store.",
      registers,
    });
    this.#commitSeconds = new Histogram({
      name: "inkwell_ledger_commit_duration_seconds",
      help: "From handing a batch to the store until it was on disk.",
      buckets: buckets.commitSeconds,
      registers,
    });
    this.#commitOperations = new Histogram({
      name: "inkwell_ledger_commit_operations",
      help: "Operations in one commit.",
      buckets: buckets.commitOperations,
      registers,
    });
    this.#eventLoopSeconds = new Histogram({
      name: "inkwell_event_loop_delay_seconds",
      help: "How late the event loop came to a timer, looked at every 20 ms.",
      buckets: buckets.eventLoopSeconds,
      registers,
    });
    this.#lostSpans = new Counter({
      name: "inkwell_lost_spans_total",
      help: "Spans of traces that were dropped: the collector did not take them, or not as fast as they came.",
      registers,
    });
    this.#auditProblems = new Gauge({
      name: "inkwell_audit_problems",
      help: "What the last audit of this process found wrong; NaN before the first.",
      registers,
    });
    this.#auditSeconds = new Gauge({
      name: "inkwell_audit_timestamp_seconds",
      help: "When this process last audited the ledger; NaN before the first time.",
      registers,
    });
    this.#build = new Gauge({
      name: "inkwell_build_info",
      help: "Always 1; the label is the version.",
      labelNames: ["version"],
      registers,
    });
    this.#running = new Gauge({
      name: "inkwell_running_requests",
      help: "Chat requests that are being answered.",
      registers,
    });
    this.#connections = new Gauge({
      name: "inkwell_connections",
      help: "Open connections of the public listener.",
      registers,
    });
    this.#connectionsMax = new Gauge({
      name: "inkwell_connections_max",
      help: "Most connections that the public listener accepts.",
      registers,
    });
    this.#refusedConnections = new Counter({
      name: "inkwell_refused_connections_total",
      help: "Connections that were refused because too many were open, in total or from one address.",
      labelNames: ["reason"],
      registers,
    });
    this.#uploads = new Gauge({
      name: "inkwell_uploads",
      help: "Request bodies that are being received or checked.",
      registers,
    });
    this.#uploadBytes = new Gauge({
      name: "inkwell_upload_bytes",
      help: "Bytes reserved for these bodies.",
      registers,
    });
    this.#nodes = new Gauge({ name: "inkwell_nodes", help: "Processes on the same database.", registers });
    this.#configDiffers = new Gauge({
      name: "inkwell_config_differs",
      help: "Plans, models and prices that another living node on the same database has otherwise; 0 where all agree.",
      registers,
    });
    this.#holds = new Gauge({ name: "inkwell_open_holds", help: "Open holds.", registers });
    this.#held = new Gauge({ name: "inkwell_held_credits", help: "Credits in open holds.", registers });
    const gaugePerModel = (name: string, help: string) =>
      new Gauge<"model">({ name, help, labelNames: ["model"], registers });
    this.#ready = gaugePerModel("inkwell_model_ready", "1 where the model answers, else 0.");
    this.#engineRunning = gaugePerModel(
      "inkwell_engine_running_requests",
      "Requests that the engine decodes together at this moment: the size of its batch.",
    );
    this.#engineWaiting = gaugePerModel("inkwell_engine_waiting_requests", "Requests in the engine's queue.");
    this.#enginePaused = gaugePerModel(
      "inkwell_engine_paused_requests",
      "Requests that gave their place in the batch to another account and go on later.",
    );
    this.#oldestWait = gaugePerModel(
      "inkwell_queue_oldest_wait_seconds",
      "How long the oldest request in the engine's queue has waited; 0 if the queue is empty.",
    );
    this.#starved = gaugePerModel(
      "inkwell_queue_starved_seconds",
      "The longest that an account with requests in the queue has had no place in the batch at all.",
    );
    this.#batchRequests = new Histogram({
      name: "inkwell_engine_batch_requests",
      help: "Requests in one step of the decoder, which makes a token for each or reads a part of a prompt.",
      labelNames: ["model"],
      buckets: buckets.batchRequests,
      registers,
    });
    // From the start, so that the first refusal is an increase.
    for (const reason of ["total", "address"] as const) this.#refusedConnections.labels({ reason }).inc(0);
    this.#auditProblems.set(Number.NaN);
    this.#auditSeconds.set(Number.NaN);
  }

  /** What `text` reads anew each time; to be called once, when there is a service to be looked at. */
  observe(sources: MetricsSources): void {
    this.#build.labels(sources.version).set(1);
    this.#sources = sources;
  }

  finished(record: RequestRecord): void {
    const { path, status, code, durationMs, firstTokenMs, acceptedModel: model, refused, charge } = record;
    if (charge !== null) this.charged(charge);
    const endpoint = path ?? "other";
    this.#requests.labels({ endpoint, status: String(status ?? "none"), code: code ?? "" }).inc();
    this.#requestSeconds.labels({ endpoint, model: model ?? "" }).observe(durationMs / 1000);
    if (refused !== null) {
      this.#refusedBytes.inc(refused.bytes);
      this.#refusedSeconds.inc(refused.ms / 1000);
    }
    if (firstTokenMs !== null && model !== null) {
      this.#firstTokenSeconds.labels({ model }).observe(firstTokenMs / 1000);
    }
  }

  chargedLate(_record: RequestRecord, charge: Charge): void {
    this.charged(charge);
  }

  charged({ model, ending, usage, paid, paidBefore, shortfall, shortfallBefore }: Charge): void {
    this.#settlements.labels({ model, ending }).inc();
    for (const [kind, count] of [
      ["prompt", usage.promptTokens - usage.cachedTokens],
      ["cached_prompt", usage.cachedTokens],
      ["completion", usage.completionTokens - usage.reasoningTokens],
      ["reasoning", usage.reasoningTokens],
    ] as const) {
      this.#tokens.labels({ model, kind }).inc(count);
    }
    for (const bucket of paying) {
      // What the hold's expiry took has been counted as that.
      const takenNow = paid[bucket] - (paidBefore?.[bucket] ?? 0);
      this.#charged.labels({ bucket, ending }).inc(takenNow / microPerCredit);
    }
    this.#shortfall.inc((shortfall - shortfallBefore) / microPerCredit);
    if (usage.estimated) this.#estimated.labels({ model, reason: estimatedBecause(usage, ending) }).inc();
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
        this.#charged.labels({ bucket, ending: "expired" }).inc(receipt[bucket] / microPerCredit);
      }
      this.#shortfall.inc(receipt.shortfall / microPerCredit);
    }
  }

  connectionRefused(reason: ConnectionRefusal): void {
    this.#refusedConnections.labels({ reason }).inc();
  }

  decoded(model: string, requests: number): void {
    this.#batchRequests.labels({ model }).observe(requests);
  }

  eventLoopDelayed(delayMs: number): void {
    this.#eventLoopSeconds.observe(delayMs / 1000);
  }

  lostSpans(count: number): void {
    this.#lostSpans.inc(count);
  }

  audited(problems: number, atMs: number): void {
    this.#auditProblems.set(problems);
    this.#auditSeconds.set(atMs / 1000);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  async text(): Promise<string> {
    if (this.#sources !== null) await this.#look(this.#sources);
    return await this.#registry.metrics();
  }

  async #look({
    running,
    connections,
    uploads,
    catalog,
    holdTotals,
    lateCharges,
    nodes,
  }: MetricsSources): Promise<void> {
    this.#running.set(running());
    this.#connections.set(connections.count);
    this.#connectionsMax.set(connections.max);
    this.#uploads.set(uploads.count);
    this.#uploadBytes.set(uploads.bytes);
    const others = nodes();
    this.#nodes.set(others.length);
    this.#configDiffers.set(new Set(others.flatMap((node) => node.differs)).size);
    this.#lateCharges.set(lateCharges());
    // Without its store the service is not ready, which /readyz tells; the other numbers are still wanted.
    const totals = await holdTotals().catch(() => ({ holds: Number.NaN, micro: Number.NaN }));
    this.#holds.set(totals.holds);
    this.#held.set(totals.micro / microPerCredit);
    for (const { id: model, engine } of catalog.all()) {
      const load: EngineLoad = engine.load?.() ?? { running: 0, waiting: 0 };
      this.#ready.labels({ model }).set(engine.state === "ready" ? 1 : 0);
      this.#engineRunning.labels({ model }).set(load.running);
      this.#engineWaiting.labels({ model }).set(load.waiting);
      this.#enginePaused.labels({ model }).set(load.paused ?? 0);
      this.#oldestWait.labels({ model }).set((load.oldestWaitMs ?? 0) / 1000);
      this.#starved.labels({ model }).set((load.starvedMs ?? 0) / 1000);
    }
  }
}

/** An answer that was broken off never had the numbers that come at its end; a whole one without them is worth a look. */
function estimatedBecause(
  { absurd = false, endedHere = false }: Usage,
  ending: Ending,
): "absurd" | "cut" | "missing" {
  if (absurd) return "absurd";
  if (endedHere) return "cut";
  return ending === "stop" || ending === "length" ? "missing" : "cut";
}
