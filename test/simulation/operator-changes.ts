/** The changes that operators of a simulated world make, drawn at random. */

import type { MemoryLedger } from "../fixtures/memory-ledger.ts";
import { hour } from "../fixtures/times.ts";
import type { Random } from "./random.ts";

/** What operators can refer to. */
interface Known {
  /** Id of the change. */
  id: string;
  account: string;
  nowMs: number;
  ledger: MemoryLedger;
  payments: readonly { account: string; id: string }[];
  requestIds: readonly string[];
}

export interface OperatorChange {
  method: string;
  path: string;
  body: object;
  /** It is sent until it has an answer. */
  isRepeated: boolean;
}

/** Null: there is nothing to refer to. `plans`: another plans section. */
export function drawChange(random: Random, known: Known): OperatorChange | "plans" | null {
  const { id, account, ledger } = known;
  const path = `/admin/accounts/${account}`;
  const post = (to: string, body: object) => ({ method: "POST", path: to, body, isRepeated: true });
  const patch = (to: string, body: object) => ({ method: "PATCH", path: to, body, isRepeated: true });
  const ofAny = <T>(items: readonly T[], change: (item: T) => OperatorChange) =>
    items.length === 0 ? null : change(random.pick(items));
  const action = random.weighted({
    ...{ topup: 5, refund: 4, promote: 3, adjust: 2, memo: 2, plan: 4, suspend: 1, resume: 2, caps: 2 },
    ...{ stop: 2, reload: 1, plans: 1 },
  });
  switch (action) {
    case "topup":
      return post(`${path}/topups`, { payment_id: id, credits: random.whole(1, 10) });
    case "refund":
      return ofAny(known.payments, (payment) =>
        post(`/admin/accounts/${payment.account}/refunds`, {
          refund_id: id,
          payment_id: payment.id,
          credits: random.whole(1, 6),
        }),
      );
    case "promote": {
      const gift = { operation_id: id, credits: random.whole(1, 5), reason: "a gift" };
      const expires_at = new Date(known.nowMs + 3 * hour).toISOString();
      return post(`${path}/adjustments`, random.chance(0.5) ? { ...gift, expires_at } : gift);
    }
    case "adjust":
      return post(`${path}/adjustments`, { operation_id: id, credits: -1, reason: "a mistake" });
    case "memo":
      return ofAny(known.requestIds, (request_id) =>
        post(`${path}/adjustments`, { operation_id: id, credits: 1, reason: "cut off", request_id }),
      );
    case "plan":
      return patch(path, {
        operation_id: id,
        plan: random.pick(["small", "large"]),
        at: random.pick(["refresh", "now", "new_window"]),
      });
    case "suspend":
    case "resume": {
      const state = action === "suspend" ? "suspended" : "active";
      return post(`${path}/state`, { operation_id: id, state });
    }
    case "caps": {
      const caps = [
        { credits: random.whole(0, 3), every: random.pick(["PT1H", "P1D"]) },
        { name: "dear", credits: random.whole(0, 3), every: "P1D", align: "calendar", models: ["m*"] },
      ];
      const spending_caps = random.pick([[], caps.slice(0, 1), caps]);
      const keys = [...ledger.keys.values()].filter((key) => key.account === account);
      return ofAny(keys, (key) => patch(`/admin/keys/${key.id}`, { operation_id: id, spending_caps }));
    }
    case "stop":
      return ofAny([...ledger.holds.values()], (hold) => ({
        ...post(`/admin/requests/${hold.id}/stop`, {}),
        isRepeated: false,
      }));
    case "reload":
      return { ...post("/admin/reload", {}), isRepeated: false };
    case "plans":
      return "plans";
  }
}
