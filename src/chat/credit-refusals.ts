/**
 * The message of a request that credits or a cap cannot pay: its cost, what is left, and the
 * remedies. Guarantees that each named remedy helps: a shorter prompt only if its
 * texts make the difference, a refresh only if it brings enough.
 */
import type { Unpaid } from "../ledger/outcomes.ts";
import { costAtMost, type Price } from "../ledger/pricing.ts";
import { exactCredits, grouped, type MicroCredits } from "../units.ts";

/** What a hold must pay at least. */
export interface UnpaidRequest {
  model: string;
  price: Price;
  /** Tokens of the prompt that the hold pays for. */
  promptTokens: number;
  /** Tokens of the shortest prompt: those of the chat template. */
  shortestTokens: number;
  /** The tokens are counted only after the request has run. */
  isBound: boolean;
}

interface Words {
  payer: string;
  refresh: string;
  thenPays: string;
  neverEnough: string;
  ask: string;
}

/** No advice to buy: purchased credits are capped too. */
function wordsFor({ cap }: Unpaid): Words {
  if (cap === null) {
    return {
      payer: "The balance",
      refresh: "Credits refresh",
      thenPays: "then pay",
      neverEnough: "this plan ever refills",
      ask: "Ask the operator of this service for another plan or for more credits.",
    };
  }
  const { of, name, every, amountMicro } = cap;
  const named = name === every ? "" : ` "${name}"`;
  const owner = of === "key" ? "this key" : "this account's plan";
  return {
    payer: `The cap${named} of ${owner} (${exactCredits(amountMicro)} credits per ${every})`,
    refresh: "It refreshes",
    thenPays: "then pays",
    neverEnough: "the caps ever allow",
    ask:
      of === "key"
        ? "Ask for a higher cap, or use another key."
        : "Ask the operator of this service for another plan.",
  };
}

export function creditMessage(shortage: Unpaid, request: UnpaidRequest): string {
  const { model, price, promptTokens, shortestTokens, isBound } = request;
  const words = wordsFor(shortage);
  const { payer, ask } = words;
  const neededMicro = costAtMost(price, promptTokens, 1);
  // What costs nothing is refused only by a cap of 0.
  if (neededMicro === 0) return `${payer} is 0, which pauses the key. ${ask}`;
  const needed = exactCredits(neededMicro);
  const left = exactCredits(shortage.leftMicro);
  const counted = isBound
    ? ` The prompt has at most ${grouped(promptTokens)} tokens, and all of them are held until the request has run; the shortest prompt takes ${grouped(shortestTokens)}. Unused credits return.`
    : "";
  return `${payer} cannot pay this prompt and one token of "${model}": they take ${needed} credits, and ${left} are left.${counted} ${adviceOf(shortage, request, { words, neededMicro })}`;
}

function adviceOf(
  { mostMicro, refreshes }: Unpaid,
  { price, shortestTokens }: UnpaidRequest,
  { words, neededMicro }: { words: Words; neededMicro: MicroCredits },
): string {
  const { refresh, thenPays, neverEnough, ask } = words;
  const leastMicro = costAtMost(price, shortestTokens, 1);
  const at = (atMs: number) => `${refresh} at ${new Date(atMs).toISOString()}`;
  const isShorterPaid = leastMicro <= mostMicro;
  const shorter = isShorterPaid
    ? [`Send a shorter prompt: what is left pays for ${promptFor(price, mostMicro)}.`]
    : [];
  const enough = refreshes.find(({ amountMicro }) => amountMicro >= neededMicro);
  if (enough !== undefined) return [...shorter, `${at(enough.atMs)}.`].join(" ");
  const forShorter = refreshes.find(({ amountMicro }) => amountMicro >= leastMicro);
  if (!isShorterPaid && forShorter === undefined) {
    return `No refresh helps: even the shortest prompt and one token take ${exactCredits(leastMicro)} credits, which is more than ${neverEnough}. ${ask}`;
  }
  const later =
    isShorterPaid || forShorter === undefined
      ? []
      : [`${at(forShorter.atMs)}, and ${thenPays} for ${promptFor(price, forShorter.amountMicro)}.`];
  return [...shorter, ...later, `No refresh pays for this one. ${ask}`].join(" ");
}

/** Called only if the length of the prompt matters, so prompt tokens have a price. */
function promptFor(price: Price, micro: MicroCredits): string {
  const tokens = Math.floor((micro - costAtMost(price, 0, 1)) / costAtMost(price, 1, 0));
  return `a prompt of up to ${grouped(tokens)} tokens, with those of the chat template`;
}
