/**
 * Questions to all processes of one service: its workers, or the only process. Each process
 * answers for itself, and the one that asks puts the answers together.
 */
import { deserialize, serialize } from "node:v8";

export interface Asked {
  question: string;
  argument: Uint8Array;
  /** A process that has not answered by then does not answer. */
  waitMs: number;
  /** The answer of this process, if last answers outlive their processes. */
  own: Uint8Array | null;
}

export class Peers {
  readonly #relay: ((asked: Asked) => Promise<(Uint8Array | null)[]>) | null;
  readonly #answers = new Map<string, (argument: Uint8Array) => Promise<Uint8Array>>();

  /** `relay` resolves with the answers of the other processes. Null: there is none. */
  constructor(relay: ((asked: Asked) => Promise<(Uint8Array | null)[]>) | null = null) {
    this.#relay = relay;
  }

  /** Whether the service is this process. */
  get areNone(): boolean {
    return this.#relay === null;
  }

  /**
   * Returns a function that asks the other processes. A null is a process that does not answer.
   * With `own`, the answers include the last ones of processes that have died.
   */
  others<A, T>(question: string, answer: (argument: A) => T | Promise<T>, waitMs = 2_000) {
    this.#answers.set(question, async (argument) => serialize(await answer(deserialize(argument))));
    return async (argument: A, own: T | null = null): Promise<(T | null)[]> => {
      if (this.#relay === null) return [];
      const kept = own && serialize(own);
      const answers = await this.#relay({ question, argument: serialize(argument), waitMs, own: kept });
      return answers.map((each) => each && deserialize(each));
    };
  }

  /** Returns a function that asks all processes. The answer of this one is the first. */
  all<A, T>(question: string, answer: (argument: A) => T) {
    const others = this.others(question, answer);
    return async (argument: A): Promise<[T, ...(T | null)[]]> => {
      return [answer(argument), ...(await others(argument))];
    };
  }

  /** Answers a question of another process. Null: this one cannot answer it yet. */
  async answer(question: string, argument: Uint8Array): Promise<Uint8Array | null> {
    return (await this.#answers.get(question)?.(argument)) ?? null;
  }
}
