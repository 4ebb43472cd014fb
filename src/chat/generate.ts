/**
 * One request from top to bottom: model, prompt length, hold, engine, settlement. Streamed and
 * whole answers take the same path.
 *
 * Each ending and its charge (docs/ledger.md):
 *
 * | ending                               | recorded as             | charged                     |
 * |--------------------------------------|-------------------------|-----------------------------|
 * | refused before an engine saw it      | refused, or no row      | nothing                     |
 * | rejected by the engine               | refused                 | nothing                     |
 * | store did not confirm the hold       | refused, or no row      | nothing: it is voided       |
 * | failure or shutdown, no text sent    | engine_failed, shutdown | nothing                     |
 * | client left the queue                | client_gone             | nothing                     |
 * | client left before the first token   | client_gone             | prompt                      |
 * | client left during a stream          | client_gone             | prompt and generated tokens |
 * | operator stopped the request         | stopped                 | as if the client had left   |
 * | account suspended or closed          | stopped                 | what its hold pays for      |
 * | hold may have expired: store away    | engine_failed           | as if the engine had failed |
 * | engine failed during a stream        | engine_failed           | prompt and generated tokens |
 * | service stopped during a stream      | shutdown                | prompt and generated tokens |
 * | complete, or end of the credits      | stop, length, credits   | exact usage                 |
 * | a cap gave less than the credits     | cap                     | exact usage                 |
 * | this process died                    | expired                 | the last checkpoint         |
 */

import type { Caller } from "../accounts/keys.ts";
import { Refusal, RequestStopped, StoreUnavailableError } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { SettleOperation } from "../ledger/operations.ts";
import type { CapName, OutcomeOf } from "../ledger/outcomes.ts";
import { costAtMost } from "../ledger/pricing.ts";
import type { Rates } from "../ledger/rate-limits.ts";
import { refusalOf } from "../ledger/refusals.ts";
import type { BucketAmounts, Ending } from "../ledger/rows.ts";
import { given } from "../objects.ts";
import type { MicroCredits } from "../units.ts";
import { allows, type Catalog, type ChatRequest, type Model, withDefaults } from "./catalog.ts";
import {
  EngineError,
  type FinishReason,
  type Generation,
  type Message,
  nothingMade,
  type PreparedPrompt,
  type TokenLogprob,
  type Usage,
} from "./engine.ts";
import { firstSlice, HoldExtender } from "./hold-extender.ts";
import { contextWords, refusalOfEngine, refusalOfHold } from "./refusals.ts";

/**
 * Event of an answer: one `accepted`, any number of `text`, one `end`, in this order. They arrive
 * in batches.
 */
export type AnswerEvent =
  /** All checks have passed, credits are held, and the engine has the request. */
  | { type: "accepted"; rates: Rates; promptTokens: number }
  | { type: "text"; text: string; logprobs?: TokenLogprob[] }
  /** The charge is on disk. */
  | { type: "end"; finishReason: FinishReason; usage: Usage };

/** Charge of one request, for its record. */
export interface Charge {
  model: string;
  ending: Ending;
  usage: Usage;
  /** Tokens that the engine reported beyond what the hold paid for. Normally none. */
  uncharged: { promptTokens: number; completionTokens: number };
  costMicro: MicroCredits;
  /** Part of the cost that each bucket paid. The rest is the shortfall. */
  paid: BucketAmounts;
  /**
   * Part of `paid` that an earlier expiry took. Null if the hold had not expired.
   */
  paidBefore: BucketAmounts | null;
  shortfallMicro: MicroCredits;
  /** Part of the shortfall that an earlier expiry recorded. */
  shortfallBeforeMicro: MicroCredits;
  /** The credits that the account has left. */
  left: BucketAmounts;
  times: StageTimes;
}

/** End of each stage, on the clock of `performance.now()`. */
interface StageTimes {
  /** The prompt had been counted. */
  preparedMs: number;
  /** Credits were held. */
  heldMs: number;
  /** The first text came from the engine; null if none did. */
  firstTextMs: number | null;
  /** The engine was done. */
  generatedMs: number;
  /** The charge was recorded. */
  settledMs: number;
}

/** The present work of an engine for a request, and the hold that pays for it. */
export interface ChatWork {
  readonly promptTokens: number;
  readonly generation: Pick<Generation, "started" | "usage">;
  readonly hold: Pick<HoldExtender, "heldMicro">;
}

/** The part of a request's record that the pipeline fills in. */
export interface ChatRecord {
  readonly requestId: string;
  /** Id of the requested model, if the catalog has it. */
  model: string | null;
  /** The work of the engine, while it lasts. */
  work: ChatWork | null;
  /**
   * The charge has been recorded: before the end of the answer, or after it if the store was away.
   */
  charged(charge: Charge): void;
  /**
   * The charge could not be recorded and is given up: the hold is charged by its last checkpoint,
   * if there is one.
   */
  unsettled(reason: unknown): void;
}

export interface GenerateDependencies {
  catalog: Catalog;
  ledger: Ledger;
  /**
   * Lifetime of a hold without an extension. Extensions are written at least every third of it.
   */
  holdTtlMs: number;
}

/**
 * Throws a `Refusal`: before `accepted` if a check fails, after it if the engine fails. On abort,
 * stops the engine and settles the generated tokens. Then throws `signal.reason` if it is a
 * `Refusal`; otherwise returns without `end`.
 */
export async function* generate(
  dependencies: GenerateDependencies,
  caller: Caller,
  asked: ChatRequest,
  record: ChatRecord,
  signal: AbortSignal,
): AsyncGenerator<readonly AnswerEvent[], void, undefined> {
  const { ledger } = dependencies;
  const { requestId } = record;
  using use = useModel(dependencies.catalog, asked.model);
  const { model } = use;
  record.model = model.id;
  requireAllowed(caller, model.id);
  const request = withDefaults(asked, model);

  const { messages, reasoning, user } = request;
  const prompt = { accountId: caller.accountId, messages, reasoning, ...given({ user }) };
  const prepared = await model.engine.prepare(prompt, signal).catch((error: unknown) => {
    if (signal.aborted) return null;
    throw refusalOfFailure(error, model);
  });
  if (prepared === null || signal.aborted) return throwIfRefused(signal);
  const preparedMs = performance.now();
  const { promptTokens, bound } = prepared;
  const promptTokensMax = bound?.tokens ?? promptTokens;
  const tokensLeft = leftFor(prepared, model.engine.contextWindow);
  if (tokensLeft < 1) throw contextLengthExceeded(model);
  const wantTokens = Math.min(
    request.maxTokens ?? tokensLeft,
    tokensLeft,
    model.outputTokensMax ?? tokensLeft,
  );

  const { price } = model;
  const holdsInFull = model.engine.reportsUsageLate === true;
  const wantMicro = costAtMost(price, promptTokensMax, holdsInFull ? wantTokens : firstSlice(wantTokens));
  const askedMs = performance.now();
  const held = await ledger.apply({
    kind: "hold",
    account: caller.accountId,
    requestId,
    key: caller.key.id,
    model: model.id,
    price,
    promptTokens,
    minMicro: costAtMost(price, promptTokensMax, 1),
    wantMicro,
    ttlMs: dependencies.holdTtlMs,
  });
  if (held.kind !== "held") {
    throw refusalOfHold(held, caller.accountId, {
      model: model.id,
      price,
      promptTokens: promptTokensMax,
      shortestTokens: bound?.shortestTokens ?? shortestOf(promptTokens, messages),
      isBound: bound !== undefined,
    });
  }
  const heldMs = performance.now();

  // A hold is open from here on. Every path below ends in the `finally`.
  let generation: Generation | null = null;
  let firstTextMs: number | null = null;
  let finishReason: FinishReason | null = null;
  let isCut = false;
  let completedBy: EndedAnswer["completedBy"] = null;
  let reached: CapName | null = null;
  let failure: unknown = null;
  let charged = nothingMade;
  let isCharged = false;
  const { accountId } = caller;
  const { holdTtlMs } = dependencies;
  const extendedRequest = {
    accountId,
    requestId,
    price,
    promptTokensMax,
    wantTokens,
    wantMicro,
    holdTtlMs,
    askedMs,
  };
  const holdExtender = new HoldExtender(ledger, extendedRequest, held);
  const stop = () => void generation?.stop();
  try {
    if (holdsInFull) await holdExtender.payInFull(signal);
    if (holdExtender.failure !== null) throw holdExtender.failure;
    if (signal.aborted) return throwIfRefused(signal);
    const { maxTokens, paidTokens } = holdExtender;
    const { sampling } = request;
    generation = prepared.generate({
      maxTokens,
      paidTokens,
      isLimited: asked.maxTokens !== undefined && asked.maxTokens <= maxTokens,
      isWhole: !request.stream,
      sampling,
      onTokens: (made) => holdExtender.made(made),
    });
    holdExtender.watch(generation);
    record.work = { promptTokens, generation, hold: holdExtender };
    signal.addEventListener("abort", stop, { once: true });
    yield [{ type: "accepted", rates: held.rates, promptTokens }];
    // If the iteration ends without an `end` event, the reader has left.
    for await (const batch of generation) {
      const texts = batch.filter((event) => event.type === "text");
      if (texts.length > 0) {
        firstTextMs ??= performance.now();
        yield texts;
      }
      const last = batch.at(-1);
      if (last?.type === "end") ({ finishReason, isCut = false } = last);
    }
    if (finishReason === null) {
      if (holdExtender.failure !== null) throw holdExtender.failure;
      if (!signal.aborted) throw new EngineError("failed", "the generation ended without an end event");
      return throwIfRefused(signal);
    }
    // A server has limits of its own, too.
    isCut ||= generation.usage.completionTokens >= holdExtender.maxTokens;
    const boughtOut = finishReason === "length" && isCut && holdExtender.maxTokens < wantTokens;
    const halted = boughtOut ? holdExtender.halted : null;
    // A whole answer is delivered as far as it was paid for.
    if (halted !== null && request.stream) throw refusalOf(halted);
    // Receipts have no ending of their own for an answer that was filtered.
    completedBy = finishReason === "content_filter" ? "stop" : finishReason;
    if (halted !== null) completedBy = "stopped";
    else if (boughtOut) {
      reached = holdExtender.cap;
      completedBy = reached === null ? "credits" : "cap";
    }
  } catch (error) {
    failure = error;
    throw refusalOfFailure(error, model);
  } finally {
    signal.removeEventListener("abort", stop);
    await generation?.stop();
    holdExtender.stop();
    record.work = null;
    const ending = endingOf({ generation, completedBy, failure, signal });
    const isDelivered = request.stream && firstTextMs !== null;
    const made = { started: generation?.started ?? false, isDelivered };
    const usage = chargedUsage(ending, made, generation?.usage ?? nothingMade);
    charged = await holdExtender.cover(usage);
    isCharged = await settleHold(
      ledger,
      { accountId, record, signal },
      {
        model: model.id,
        ending,
        usage: reached === null ? charged : { ...charged, note: noteOf(reached, charged) },
        uncharged: {
          promptTokens: usage.promptTokens - charged.promptTokens,
          completionTokens: usage.completionTokens - charged.completionTokens,
        },
        times: { preparedMs, heldMs, firstTextMs, generatedMs: performance.now() },
      },
    );
  }
  if (!isCharged) throw notSettled();
  yield [{ type: "end", finishReason, usage: charged }];
}

/** Returns the ending of the table above. */
function endingOf({ generation, completedBy, failure, signal }: EndedAnswer): Ending {
  if (generation === null) return signal.reason instanceof RequestStopped ? "stopped" : "refused";
  if (completedBy !== null) return completedBy;
  if (failure instanceof EngineError && failure.isCallers) return "refused";
  if (failure instanceof Refusal && failure.code === "account_suspended") return "stopped";
  if (failure !== null && failure !== signal.reason) return "engine_failed";
  if (signal.reason instanceof RequestStopped) return "stopped";
  return signal.reason instanceof Refusal ? "shutdown" : "client_gone";
}

/** What the receipt says of an answer that a cap has ended. */
function noteOf({ name, of }: CapName, { note }: Usage): string {
  const reached = `the cap ${name} of the ${of} was reached`;
  return note === undefined ? reached : `${note}; ${reached}`;
}

function stoppedBy(ending: Ending, { reason }: AbortSignal): string | null {
  return ending === "stopped" && reason instanceof RequestStopped ? reason.by : null;
}

interface EndedAnswer {
  generation: Generation | null;
  /** Null if the answer is not complete. */
  completedBy: "stop" | "length" | "credits" | "cap" | "stopped" | null;
  /** The error of the engine or of the hold, the reason of the abort, or null. */
  failure: unknown;
  signal: AbortSignal;
}

/** Returns the charged part of the generated usage, by the table above. */
function chargedUsage(
  ending: Ending,
  { started, isDelivered }: { started: boolean; isDelivered: boolean },
  usage: Usage,
): Usage {
  const isComplete = ["stop", "length", "credits", "cap"].includes(ending);
  const isNotCallersFault = ending === "engine_failed" || ending === "shutdown";
  // The caller gets an error without text, and SDKs and proxies repeat such a request.
  if (isNotCallersFault && !isDelivered) return nothingMade;
  if (isComplete || usage.completionTokens > 0) return usage;
  if (!started || ending === "refused") return nothingMade;
  const { promptTokens, estimated } = usage;
  return {
    ...nothingMade,
    promptTokens,
    estimated,
    cachedTokens: Math.min(usage.cachedTokens, promptTokens),
  };
}

function useModel(catalog: Catalog, id: string) {
  const use = catalog.use(id);
  if (use === undefined) {
    throw new Refusal("model_not_found", `Unknown model "${id}". GET /v1/models lists the models.`, {
      param: "model",
    });
  }
  return use;
}

function requireAllowed(caller: Caller, id: string): void {
  if (!allows(caller.plan.models, id) || !allows(caller.key.models, id)) {
    throw new Refusal(
      "model_not_allowed",
      `This key may not use "${id}". GET /v1/models lists the models that it may use.`,
      { param: "model" },
    );
  }
}

/** The message has no token count, because engines stop counting at the limit. */
function contextLengthExceeded(model: Model): Refusal {
  const window = model.engine.contextWindow;
  return new Refusal(
    "context_length_exceeded",
    `${contextWords(window)} It is for prompt and answer of "${model.id}" together, and the messages have more. Send fewer or shorter messages.`,
    { param: "messages" },
  );
}

/**
 * Returns what the prompt leaves of the window. An estimate never takes more than half, because
 * the prompt may be far shorter. If it is longer, the upstream names what is left.
 */
function leftFor({ promptTokens, bound }: PreparedPrompt, contextWindow: number): number {
  const left = contextWindow - promptTokens;
  return bound === undefined ? left : Math.max(left, Math.ceil(contextWindow / 2));
}

/** Throws the reason if the service ended the request. A client that has left gets no answer. */
function throwIfRefused(signal: AbortSignal): void {
  if (signal.reason instanceof Refusal) throw signal.reason;
}

/**
 * Returns the tokens of a counted prompt that its text cannot explain, because a token covers at
 * least one byte. Fewer messages need less of the template.
 */
function shortestOf(promptTokens: number, messages: readonly Message[]): number {
  const [only, ...others] = messages;
  if (only === undefined || others.length > 0) return 1;
  return Math.max(1, promptTokens - Buffer.byteLength(only.content));
}

function refusalOfFailure(error: unknown, { id, engine }: Model): unknown {
  return error instanceof EngineError ? refusalOfEngine(error, id, engine.contextWindow) : error;
}

function notSettled(): Refusal {
  return new Refusal("internal_error", "The answer is complete, but its charge could not be recorded.");
}

/**
 * Settles the hold. Returns true if the `end` may be sent: the charge is on disk, or the store has
 * been away for too long and the charge is retried in the background. Returns false if the charge
 * can never be recorded; the log then has the reason.
 */
async function settleHold(
  ledger: Ledger,
  { accountId, record, signal }: { accountId: string; record: ChatRecord; signal: AbortSignal },
  made: Pick<Charge, "model" | "ending" | "usage" | "uncharged"> & { times: Omit<StageTimes, "settledMs"> },
): Promise<boolean> {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens, estimated, note } = made.usage;
  const operation: SettleOperation = {
    kind: "settle",
    account: accountId,
    requestId: record.requestId,
    usage: { promptTokens, cachedTokens, completionTokens, reasoningTokens },
    ending: made.ending,
    by: stoppedBy(made.ending, signal),
    estimated,
    ...given({ note }),
  };
  const settled = (outcome: OutcomeOf<SettleOperation>): boolean => {
    if (outcome.kind !== "settled") {
      record.unsettled(outcome);
      return false;
    }
    const { paidBefore = null, shortfallBeforeMicro = 0, costMicro, paid, shortfallMicro, left } = outcome;
    const times = { ...made.times, settledMs: performance.now() };
    const amounts = { costMicro, paid, paidBefore, shortfallMicro, shortfallBeforeMicro, left };
    record.charged({ ...made, times, ...amounts });
    return true;
  };
  try {
    return settled(await ledger.apply(operation));
  } catch (error) {
    if (error instanceof StoreUnavailableError) {
      ledger.applyLate(operation).then(settled, (reason: unknown) => record.unsettled(reason));
      return true;
    }
    record.unsettled(error);
    return false;
  }
}
