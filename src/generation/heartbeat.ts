/**
 * Keeps the hold of a running generation alive and writes down what it has used so far, so that the death of this
 * process costs at most what was made since the last checkpoint. Never stalls the generation: checkpoints run
 * beside it, one at a time.
 */
import type { Ledger } from "../credits/ledger.ts";
import { Refusal } from "../errors.ts";
import { type Generation, nothingMade } from "./engine.ts";

export interface Heartbeat {
  /** Why the generation was stopped by its heartbeat; null where it was not. */
  readonly failure: Refusal | null;
  /** Resolves when no checkpoint is under way and none will follow. Never rejects. */
  stop(): Promise<void>;
}

export function startHeartbeat(
  ledger: Ledger,
  account: string,
  hold: string,
  ttlMs: number,
  running: () => Generation | null,
): Heartbeat {
  let failure: Refusal | null = null;
  let underWay: Promise<void> | null = null;
  let n = 0;

  async function checkpoint(generation: Generation): Promise<void> {
    n += 1;
    // While it waits in the engine's queue a request costs nothing, whatever the engine already knows of its prompt.
    const made = generation.started ? generation.usage : nothingMade;
    const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = made;
    const used = { promptTokens, cachedTokens, completionTokens, reasoningTokens };
    // A store that stays away is not yet a reason to stop: the hold lives on until its time has run out.
    const outcome = await ledger
      .apply({ kind: "extend", account, hold, n, more: 0, used, ttlMs })
      .catch(() => null);
    if (outcome === null || outcome.kind === "extended") return;
    // No engine works without an open hold.
    failure = new Refusal(
      "internal_error",
      "The request took too long to record what it used, and was stopped.",
      {
        detail: `hold ${hold} of account ${account}: ${outcome.kind}`,
      },
    );
    await generation.stop();
  }

  const timer = setInterval(() => {
    const generation = running();
    if (underWay !== null || generation === null || failure !== null) return;
    underWay = checkpoint(generation).finally(() => {
      underWay = null;
    });
  }, ttlMs / 3);

  return {
    get failure() {
      return failure;
    },
    async stop() {
      clearInterval(timer);
      if (underWay !== null) await underWay;
    },
  };
}
