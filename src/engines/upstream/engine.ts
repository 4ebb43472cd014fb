/**
 * The engine that generates nothing itself: it asks servers with an OpenAI-compatible interface.
 *
 * Guarantees:
 * - an upstream's words, names and keys go to the operator's log at most, cleaned (failure.ts), never to a caller;
 * - each server gets no more requests at once than `parallel`; others wait in a bounded line, and its last places are for
 *   accounts that run nothing (place-line.ts);
 * - of the servers that seem to be alive the least busy one is asked; one that fails again and again is left alone for
 *   a while (circuit.ts). No request is ever made on the service's own account;
 * - a request is sent to another server at most once, and only while nothing of its answer has come (generation.ts).
 * What is counted and charged where an upstream says nothing sensible: token-count.ts and estimate.ts.
 */
import {
  type Engine,
  EngineError,
  type EngineLoad,
  type EngineState,
  type GenerateOptions,
  type Generation,
  type Message,
  type PreparedPrompt,
  type Prompt,
} from "../../chat/engine.ts";
import type { EngineLog } from "../engine-log.ts";
import type { ThinkTags } from "../text/thinking.ts";
import { AnswerText } from "./answer-text.ts";
import { ConversationForms } from "./conversation-forms.ts";
import { type Dialect, type DialectName, dialectOf, reasoningFields, requestBody } from "./dialects.ts";
import { type PromptEstimate, PromptEstimator, sizeOf } from "./estimate.ts";
import type { Exchange, ExchangeReader } from "./exchange.ts";
import { loggable, type UpstreamFailure } from "./failure.ts";
import {
  type CompletedAnswer,
  type Failing,
  type GenerationOwner,
  UpstreamGeneration,
  type UpstreamJob,
} from "./generation.ts";
import { PlaceLine, type Places } from "./place-line.ts";
import { type Sending, UpstreamServer, type UpstreamTimes } from "./server.ts";
import { UpstreamTokenizer } from "./tokenizer.ts";

export interface UpstreamOptions {
  /** At least one; all of them offer the same model. */
  urls: readonly string[];
  key: string | null;
  /** Its name over there. */
  model: string;
  dialect: DialectName;
  contextWindow: number;
  /** Requests at once, for each server. */
  parallel: number;
  /** Of these, the last that only accounts without a running request get; fewer than `parallel`. */
  reserved: number;
  /** Requests that may wait; as many again from accounts that have none waiting. */
  queueMax: number;
  times: UpstreamTimes;
  /** Null: the model is not said to think, and is not asked how much it should. */
  reasoning: UpstreamReasoning | null;
  /** Stop sequences go along; absent: as suits the dialect. */
  sendStop?: boolean;
  /** How long to wait for the usage after the end of an answer; default 5 s. */
  finishMs?: number;
  log: EngineLog;
}

export interface UpstreamReasoning {
  /** Beside `reasoning_content` and `reasoning`, which are never taken for text. */
  field: string | null;
  /** Where the thinking is part of the text. */
  tags: ThinkTags | null;
  /** The template opens the thinking, so that answers begin inside. */
  opened: boolean;
  /** Nothing is told of the thinking before the end. */
  hidden: boolean;
}

const knownReasoningFields = ["reasoning_content", "reasoning"];
const retryAfterSeconds = 2;
/** So many tokens beyond what was paid for are no slip in counting: a server counts the token that ends a turn, say. */
const surpriseMin = 32;

export class UpstreamEngine implements Engine, GenerationOwner {
  readonly contextWindow: number;
  readonly #options: UpstreamOptions;
  readonly #dialect: Dialect;
  readonly #servers: readonly UpstreamServer[];
  readonly #line: PlaceLine<UpstreamGeneration>;
  readonly #generations = new Set<UpstreamGeneration>();
  readonly #estimator = new PromptEstimator();
  readonly #tokenizer: UpstreamTokenizer;
  readonly #reasoningFields: readonly string[];
  #isClosed = false;
  /** Where the choice among equals begins. */
  #turn = 0;
  /** While somebody waits and a server rests. */
  #restOver: NodeJS.Timeout | undefined;
  #tellsLate: boolean;

  constructor(options: UpstreamOptions) {
    const { urls, key, parallel, times, log, reasoning } = options;
    this.#options = options;
    this.contextWindow = options.contextWindow;
    this.#tellsLate = reasoning?.hidden ?? false;
    this.#dialect = dialectOf(options.dialect);
    this.#servers = urls.map((url) => new UpstreamServer({ url, key, connectionsMax: parallel, times }));
    this.#line = new PlaceLine(options.queueMax);
    this.#tokenizer = new UpstreamTokenizer((upstream, reason) => {
      log.warn(
        { upstream, reason },
        "the upstream's tokenizer gives no counts; prompts are estimated for a while",
      );
    });
    const named = reasoning?.field ?? null;
    this.#reasoningFields = named === null ? knownReasoningFields : [named, ...knownReasoningFields];
  }

  /** As configured, or as it turned out. */
  get tellsLate(): boolean {
    return this.#tellsLate;
  }

  get state(): EngineState {
    if (this.#isClosed) return "closed";
    const nowMs = performance.now();
    return this.#servers.every((server) => server.isOpen(nowMs)) ? "unavailable" : "ready";
  }

  load(): EngineLoad {
    const running = this.#servers.reduce((sum, { busy }) => sum + busy, 0);
    return { running, ...this.#line.load(performance.now()) };
  }

  async prepare(prompt: Prompt, signal: AbortSignal): Promise<PreparedPrompt> {
    if (this.state !== "ready") throw this.#unavailable();
    const { forms, estimate } = await this.#count(prompt, signal);
    return {
      promptTokens: estimate.atMost,
      generate: (options) => this.#generate(prompt, forms, estimate, options),
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#line.takeAll(performance.now());
    clearTimeout(this.#restOver);
    for (const generation of this.#generations) generation.breakOff(this.#unavailable());
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  /** With the conversation in the first form that the template takes, as far as that can be asked. */
  async #count({ messages, reasoning }: Prompt, signal: AbortSignal): Promise<CountedPrompt> {
    const kind = this.#dialect.tokenizer;
    const server = kind === null ? null : this.#anyToAsk();
    if (kind !== null && server !== null) {
      const forms = new ConversationForms(messages);
      const template = reasoningFields(this.#dialect, this.#asksReasoning ? reasoning : null);
      const { model } = this.#options;
      const count = await this.#tokenizer.count(server, { kind, model, forms, template }, signal);
      signal.throwIfAborted();
      if (count !== null) return { forms, estimate: { atMost: count, likely: count } };
    }
    // A tokenizer that takes no form at all says nothing of what the model takes.
    const forms = new ConversationForms(messages);
    return { forms, estimate: this.#estimator.estimate(sizeOf(forms.current)) };
  }

  #generate(
    prompt: Prompt,
    forms: ConversationForms,
    estimate: PromptEstimate,
    options: GenerateOptions,
  ): Generation {
    if (this.state !== "ready") throw this.#unavailable();
    const { contextWindow, reasoning, finishMs } = this.#options;
    const { stop, topLogprobs } = options.sampling;
    const job: UpstreamJob = {
      accountId: prompt.accountId,
      reasoning: prompt.reasoning,
      user: prompt.user ?? null,
      forms,
      prompt: estimate,
      options,
      rules: { reasoningFields: this.#reasoningFields, topLogprobs: topLogprobs ?? null },
      text: new AnswerText({ stop, tags: reasoning?.tags ?? null, opened: reasoning?.opened ?? false }),
      contextWindow,
      finishMs,
    };
    const generation = new UpstreamGeneration(job, this);
    if (!this.#line.push(generation, performance.now())) {
      throw new EngineError("overloaded", `${this.#line.size} requests are waiting already`, {
        retryAfterSeconds,
      });
    }
    this.#generations.add(generation);
    this.#pump();
    return generation;
  }

  #pump(): void {
    let nowMs = performance.now();
    while (this.#line.size > 0 && !this.#isClosed) {
      const server = this.#choose(new Set(), nowMs);
      const next = server === null ? undefined : this.#line.next(this.#places(nowMs));
      if (server === null || next === undefined) break;
      next.begin(server);
      nowMs = performance.now();
    }
    if (this.state === "unavailable") {
      for (const generation of this.#line.takeAll(nowMs)) generation.breakOff(this.#unavailable());
    }
    this.#pumpAfterRest(nowMs);
  }

  #places(nowMs: number): Places {
    const { parallel, reserved } = this.#options;
    const servers = this.#servers.filter((server) => !server.isOpen(nowMs));
    const busy = servers.reduce((sum, server) => sum + server.busy, 0);
    const total = servers.length * parallel;
    return { total, free: total - busy, reserved: servers.length * reserved };
  }

  /**
   * The end of a rest is the only thing that makes room and that no request tells of. `nowMs`: when a server was looked for
   * in vain, so that a rest that has just ended is not taken for one that made room.
   */
  #pumpAfterRest(nowMs: number): void {
    clearTimeout(this.#restOver);
    if (this.#line.size === 0) return;
    const rests = this.#servers.map(({ openUntilMs }) => (openUntilMs ?? nowMs) - nowMs);
    const nextMs = Math.min(...rests.filter((restMs) => restMs > 0));
    if (nextMs < Infinity) this.#restOver = setTimeout(() => this.#pump(), Math.ceil(nextMs));
  }

  /** For a question, which goes over connections of its own, so that a busy server will do. */
  #anyToAsk(): UpstreamServer | null {
    const nowMs = performance.now();
    const alive = this.#servers.filter(
      (server) => !server.isOpen(nowMs) && !this.#tokenizer.isPaused(server),
    );
    return alive.reduce<UpstreamServer | null>(
      (best, server) => (best === null || isBetter(server, best, nowMs) ? server : best),
      null,
    );
  }

  /** The least busy of those that have room; of equals in turn. One that asked for a rest comes last. */
  #choose(tried: ReadonlySet<UpstreamServer>, nowMs: number): UpstreamServer | null {
    const count = this.#servers.length;
    let best: UpstreamServer | null = null;
    this.#turn = (this.#turn + 1) % count;
    for (let step = 0; step < count; step += 1) {
      const server = this.#servers[(this.#turn + step) % count];
      if (server === undefined || tried.has(server) || !server.hasRoom(nowMs)) continue;
      if (best === null || isBetter(server, best, nowMs)) best = server;
    }
    return best;
  }

  #unavailable(): EngineError {
    if (this.#isClosed) return new EngineError("unavailable", "the engine has been closed");
    const nextMs = Math.min(...this.#servers.map(({ openUntilMs }) => openUntilMs ?? 0));
    const waitSeconds = Math.max(1, Math.ceil((nextMs - performance.now()) / 1000));
    const names = this.#servers.map(({ name }) => name).join(", ");
    return new EngineError("unavailable", `every upstream has failed repeatedly: ${names}`, {
      retryAfterSeconds: waitSeconds,
    });
  }

  /** A model that is not said to think is not asked how much it should. */
  get #asksReasoning(): boolean {
    return this.#options.reasoning !== null;
  }

  body(job: UpstreamJob, messages: readonly Message[], maxTokens: number): string {
    const { model } = this.#options;
    return requestBody(this.#dialect, {
      accountId: job.accountId,
      model,
      messages,
      maxTokens,
      sampling: job.options.sampling,
      user: job.user,
      reasoning: this.#asksReasoning ? job.reasoning : null,
      sendStop: this.#options.sendStop ?? this.#dialect.sendsStop,
    });
  }

  send(server: UpstreamServer, body: string, reader: ExchangeReader, how: Sending): Exchange {
    return server.send(body, reader, () => this.#pump(), how);
  }

  another(tried: ReadonlySet<UpstreamServer>): UpstreamServer | null {
    return this.#choose(tried, performance.now());
  }

  failed(
    server: UpstreamServer,
    failure: UpstreamFailure,
    { forms, user }: UpstreamJob,
    { ticket, inAnswer, isAgain }: Failing,
  ): string {
    const { key, log } = this.#options;
    const said = `${server.name}: ${loggable(failure.message, { key, user, messages: forms.current })}`;
    if (isAgain) log.warn({ reason: said }, "an upstream failed; the request goes to another one");
    const opened = server.failed(failure, ticket, inAnswer);
    if (opened)
      log.error(
        { upstream: server.name, reason: said },
        "an upstream keeps failing and is left alone for a while",
      );
    return said;
  }

  answered(server: UpstreamServer): void {
    if (!server.answered()) return;
    this.#options.log.info({ upstream: server.name }, "an upstream answers again");
    this.#pump();
  }

  wasWhole(server: UpstreamServer): void {
    server.completed();
  }

  completed(server: UpstreamServer, job: UpstreamJob, answer: CompletedAnswer): void {
    const { usage, promptTokens, paidTokens } = answer;
    const surprise = usage.completionTokens - paidTokens;
    if (surprise >= surpriseMin && !this.#tellsLate) {
      this.#tellsLate = true;
      this.#options.log.warn(
        { upstream: server.name, tokens: surprise },
        "an upstream made tokens that it told of only at the end, more than were paid for; from now on all that an answer may have is held for beforehand (for a model that thinks unseen, say so: reasoning: { hidden: true })",
      );
    }
    if (promptTokens !== null) this.#estimator.learn(sizeOf(job.forms.current), promptTokens);
    if (usage.absurd === true) {
      this.#options.log.warn(
        { upstream: server.name },
        "an upstream reported a usage that cannot be; the request is charged by our own count",
      );
    }
  }

  ended(generation: UpstreamGeneration): void {
    this.#generations.delete(generation);
    this.#line.remove(generation, performance.now());
    // Its account, or another one, may now have one of the places that are free.
    if (this.#line.size === 0) clearTimeout(this.#restOver);
    else this.#pump();
  }
}

interface CountedPrompt {
  forms: ConversationForms;
  estimate: PromptEstimate;
}

function isBetter(server: UpstreamServer, other: UpstreamServer, nowMs: number): boolean {
  if (server.rests(nowMs) !== other.rests(nowMs)) return other.rests(nowMs);
  return server.busy < other.busy;
}
