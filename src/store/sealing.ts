/** Adds up all facts of a ledger by list, and compares them with an earlier seal (seal.ts). */
import { createHash, type Hash } from "node:crypto";
import type { Seal, SealedList } from "./seal.ts";

/** Reports a list that is not as it was sealed. */
type Fault = (row: { list: string; problem: string }) => void;

export class Sealing {
  readonly #against: ReadonlyMap<string, SealedList>;
  readonly #report: Fault;
  readonly #lists: SealedList[] = [];
  #name = "";
  #last = 0;
  #digest: Hash = createHash("sha256");
  #isCompared = true;
  readonly #seen = new Set<string>();

  constructor(against: Seal | null, report: Fault) {
    this.#against = against?.lists ?? new Map();
    this.#report = report;
  }

  get lists(): readonly SealedList[] {
    return this.#lists;
  }

  /** Begins a list. The one before is complete. */
  begin(name: string): void {
    this.end();
    this.#name = name;
    this.#last = 0;
    this.#digest = createHash("sha256");
    this.#isCompared = !this.#against.has(name);
    this.#seen.add(name);
  }

  /** `cells`: in the order of the columns. A field of the code may have another name later. */
  add(number: number, cells: readonly unknown[]): void {
    this.#compareBefore(number);
    this.#last = number;
    this.#digest.update(`${JSON.stringify(cells)}\n`);
  }

  /** Compares as soon as the sealed part is complete. */
  #compareBefore(number: number): void {
    const sealed = this.#against.get(this.#name);
    if (this.#isCompared || sealed === undefined || number <= sealed.last) return;
    this.#isCompared = true;
    if (this.#last < sealed.last) {
      this.#report({ list: this.#name, problem: `ends with number ${this.#last}, and had ${sealed.last}` });
    } else if (this.#digest.copy().digest("hex") !== sealed.sha256) {
      this.#report({ list: this.#name, problem: `is not as it was sealed, up to number ${sealed.last}` });
    }
  }

  /** Ends the last list. */
  end(): void {
    if (this.#name === "") return;
    this.#compareBefore(Number.POSITIVE_INFINITY);
    this.#lists.push({ name: this.#name, last: this.#last, sha256: this.#digest.digest("hex") });
    this.#name = "";
  }

  /** Ends all lists. Those that were sealed and are gone are reported. */
  finish(): void {
    this.end();
    for (const name of this.#against.keys())
      if (!this.#seen.has(name)) this.#report({ list: name, problem: "was sealed, and is gone" });
  }
}
