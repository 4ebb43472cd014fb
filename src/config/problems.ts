/** Collects the faults of a configuration, so that an operator sees all of them at once. */
export class Problems {
  #found: { where: string; what: string }[] = [];

  add(where: string, what: string): void {
    this.#found.push({ where, what });
  }

  get count(): number {
    return this.#found.length;
  }

  /** Removes all faults after the first `count`. */
  forgetAfter(count: number): void {
    this.#found = this.#found.slice(0, count);
  }

  /** Removes the faults of one section, and returns them as `lines` does. */
  take(section: string): string[] {
    const taken = new Problems();
    const others: { where: string; what: string }[] = [];
    for (const fault of this.#found) {
      if (new RegExp(`^${section}\\b`).test(fault.what)) taken.add(fault.where, fault.what);
      else others.push(fault);
    }
    this.#found = others;
    return taken.lines();
  }

  /** Returns each fault once: first those of the file by line, then those of variables. */
  lines(): string[] {
    const line = (where: string) => Number(/:(\d+)$/.exec(where)?.[1] ?? Number.MAX_SAFE_INTEGER);
    const sorted = this.#found.toSorted((a, b) => line(a.where) - line(b.where));
    return [...new Set(sorted.map(({ where, what }) => `${where}: ${what}`))];
  }
}
