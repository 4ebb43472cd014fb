/**
 * The clients of a simulated world: they ask, alone or ten at once, with keys of accounts or of a
 * front end. Some leave, lose their connection, or read slowly. An answer that failed is asked for
 * again.
 */
import assert from "node:assert/strict";
import { hour, minute, second } from "../fixtures/times.ts";
import type { Checks } from "./checks.ts";
import { price, publicPort } from "./configuration.ts";
import type { SimulatedDatabase } from "./database.ts";
import type { Fairness } from "./fairness.ts";
import type { FrontEnd, FrontEndRequest } from "./front-ends.ts";
import { type Answered, type Request, send } from "./http-client.ts";
import type { SimulatedNode } from "./node.ts";
import type { Random } from "./random.ts";
import type { SimulatedSocket } from "./sockets.ts";
import type { Owner, Timeline } from "./timeline.ts";

export interface ClientWorld {
  requests: number;
  hours: number;
  timeline: Timeline;
  checks: Checks;
  database: SimulatedDatabase;
  nodes: readonly SimulatedNode[];
  /** Null: calls of the database fail, so nobody knows what a request waits for. */
  fairness: Fairness | null;
  frontEnd: FrontEnd | null;
  /** Some clients leave, or have bad connections. */
  hasTrouble: boolean;
  connect(node: SimulatedNode, port: number, address: string): SimulatedSocket | null;
  check(run: () => void): void;
}

/** Somebody who asks, with a key of their own or behind a front end. */
type Asker = FrontEndRequest;

type Patience = "whole" | "leaves" | "isCut" | "isSilent" | "isSlow";

interface Attempt extends Asker {
  body: string;
  stream: boolean;
  patience: Patience;
  mark: string;
}

export class Clients {
  readonly keys: { account: string; secret: string }[] = [];
  readonly requestIds: string[] = [];
  /** By process: answers that it has completed. */
  readonly answered = new Map<Owner, number>();
  /** Requests that are still to be sent. */
  left: number;
  readonly #world: ClientWorld;
  #marks = 0;

  constructor(world: ClientWorld) {
    this.#world = world;
    this.left = world.requests;
  }

  /** Resolves when all requests have ended. */
  async run(random: Random): Promise<void> {
    await Promise.all(Array.from({ length: 8 }, () => this.#be(random.fork())));
    this.left = 0;
  }

  async #be(random: Random): Promise<void> {
    const { timeline, hours, requests } = this.#world;
    const pauseMs = (hours * hour) / (requests / 8);
    while (this.left > 0) {
      const asker = this.#asker(random);
      // Some send many requests at once.
      const together = random.chance(0.08) ? 10 : 1;
      this.left -= together;
      await Promise.all(Array.from({ length: together }, () => this.#ask(random, asker)));
      // Requests come in bursts.
      const isInBurst = random.chance(0.8);
      await timeline.pause(isInBurst ? random.delay(second) : random.next() * 10 * pauseMs);
    }
  }

  #asker(random: Random): Asker {
    const { frontEnd } = this.#world;
    if (frontEnd !== null && random.chance(0.4)) return frontEnd.ask(random);
    const { account, secret } = random.pick(this.keys);
    const answered = (_: unknown, payers: readonly string[]) =>
      assert.deepEqual(
        payers.filter((payer) => payer !== account),
        [],
        `the account ${account} pays`,
      );
    // The header of a front end means nothing with another key.
    const headers: Record<string, string> = random.chance(0.1) ? { "x-person": "ada" } : {};
    return { secret, headers, payer: account, answered };
  }

  async #ask(random: Random, asker: Asker): Promise<void> {
    const { timeline, checks, database, fairness, hasTrouble, check } = this.#world;
    const stream = random.chance(0.7);
    const options = {
      model: "small",
      stream,
      max_tokens: random.chance(0.8) ? random.whole(1, 40) : random.whole(100, 400),
    };
    const text = "word ".repeat(random.whole(1, 30));
    const habit = random.weighted({ whole: 80, leaves: 8, isCut: 5, isSilent: 2, isSlow: 5 });
    const patience = hasTrouble ? habit : "whole";
    for (let attempt = 0; attempt < 3; attempt += 1) {
      this.#marks += 1;
      const mark = `#${this.#marks}`;
      const body = JSON.stringify({ ...options, messages: [{ role: "user", content: text + mark }] });
      const answer = await this.#askOnce(random, { ...asker, body, stream, patience, mark });
      fairness?.over(mark);
      check(() => {
        assert.notEqual(answer?.status, 500, `a request is answered: ${answer?.body}`);
        const payers = checks.payersOf(database, answer?.headers.get("x-request-id"));
        if (answer?.status === 200) assert.equal(payers.length, 1, "one account pays for an answer");
        asker.answered(answer, payers);
      });
      const what =
        answer === null ? "none" : `${answer.status} ${codeOf(answer)}${answer.isWhole ? "" : " cut"}`;
      checks.count(`chat ${what}`);
      checks.note(`${timeline.nowMs} chat ${what}`);
      if (answer !== null && answer.status !== 429 && answer.status < 500) return;
      await timeline.pause(random.delay(2 * second));
    }
  }

  async #askOnce(
    random: Random,
    { payer, secret, headers: person, body, stream, patience, mark }: Attempt,
  ): Promise<Answered | null> {
    const { timeline, checks, database, fairness, nodes, connect, check } = this.#world;
    const node = random.pick(nodes);
    const { owner } = node;
    const socket = connect(node, publicPort, `10.1.0.${random.whole(1, 9)}`);
    if (socket === null) return null;
    fairness?.sent(mark, payer, owner);
    socket.once("close", () => fairness?.over(mark));
    let tokens = 0;
    const leavesAfter = random.whole(0, 5);
    const request: Request = {
      method: "POST",
      path: "/v1/chat/completions",
      body,
      headers: {
        authorization: `Bearer ${secret}`,
        "content-type": "application/json",
        connection: "close",
        ...person,
      },
      onData: (part, headers) => {
        if (!stream) return;
        tokens += part.split('"content":" w').length - 1;
        const requestId = headers.get("x-request-id") ?? "";
        if (tokens > 0) {
          check(() => checks.received(database, { requestId, tokens, priceMicro: price.completion }));
        }
        if (tokens < leavesAfter) return;
        if (patience === "leaves") socket.destroy();
        else if (patience === "isCut") socket.cut();
        else if (patience === "isSilent") socket.silence();
        else if (patience === "isSlow") {
          socket.pause();
          timeline.after(random.delay(3 * second), () => socket.resume());
        }
      },
    };
    // No SDK waits for longer.
    const end = timeline.after(10 * minute, () => {
      const mayLast = ["isCut", "isSilent", "isSlow"].includes(patience);
      check(() => assert.ok(mayLast, "an answer has no end"));
      socket.destroy();
    });
    if (!stream && patience === "leaves") timeline.after(random.delay(300), () => socket.destroy());
    const answer = await send(socket, request);
    end.close();
    if (answer?.status === 200 && answer.isWhole)
      this.answered.set(owner, (this.answered.get(owner) ?? 0) + 1);
    const id = answer?.headers.get("x-request-id");
    if (id !== undefined) this.requestIds.push(id);
    return answer;
  }
}

function codeOf({ status, body }: Answered): string {
  if (status === 200) return "";
  try {
    return String(JSON.parse(body).error.code);
  } catch {
    return "unreadable";
  }
}
