/**
 * Recent events that this process keeps in memory for its operators: sums of the last day by
 * model, refusals by account, warnings and errors. A restart forgets them.
 */
import type { RefusedRequest } from "../accounts/refused-requests.ts";
import type { Charge } from "../chat/generate.ts";
import { Peers } from "../peers.ts";
import { RecentActivity } from "./recent-activity.ts";
import { RecentErrors } from "./recent-errors.ts";
import { RecentRefusals } from "./recent-refusals.ts";
import type { RequestObserver, RequestRecord } from "./request-record.ts";

export class LiveTelemetry implements RequestObserver {
  readonly activity = new RecentActivity();
  readonly refusals = new RecentRefusals();
  /** Filled by the logger. */
  readonly errors = new RecentErrors();
  readonly #askRefusals: (account: string) => Promise<(RefusedRequest[] | null)[]>;

  constructor(peers = new Peers()) {
    this.#askRefusals = peers.all("refusals", (account: string) => this.refusals.of(account));
  }

  /** Of an account, in all processes of the service. Newest first. */
  async refusalsOf(account: string): Promise<RefusedRequest[]> {
    const all = (await this.#askRefusals(account)).flatMap((own) => own ?? []);
    return all.toSorted((one, other) => other.atMs - one.atMs);
  }

  finished(record: RequestRecord): void {
    this.activity.finished(record);
    this.refusals.finished(record);
  }

  chargedLate(record: RequestRecord, charge: Charge): void {
    this.activity.chargedLate(record, charge);
  }
}
