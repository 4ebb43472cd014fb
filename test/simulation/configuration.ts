/** The configuration of the processes of a simulated world, which differs from seed to seed. */
import type { Random } from "./random.ts";
import { receiverOrigin } from "./receivers.ts";

export const publicPort = 8080;
export const operatorPort = 8081;
export const token = "simulated-operator-token-simulated";
/** Credits per million tokens, so micro-credits per token. */
export const price = { prompt: 20_000, completion: 100_000 };

/** Each plans section is another one. */
export function plansOf(random: Random, { hasLarge }: { hasLarge: boolean }): string {
  const base = random.pick([3, 20, 100]);
  const every = random.pick(["PT5H", "PT20M"]);
  const plan = (credits: number, every: string, overage: number, limits: string) =>
    `base: { credits: ${credits}, every: ${every} }, overage: { credits: ${overage}, every: ${random.pick(["PT45M", "P1D", "P1M"])} }${limits}${capsOf(random)}, models: ["*"]`;
  const limits = random.pick([
    "",
    ", limits: { requests_per_minute: 6 }",
    ", limits: { tokens_per_minute: 400, concurrent: 2 }",
  ]);
  const small = plan(base, every, random.pick([0, 3]), limits);
  const large = plan(base * 3, random.pick([every, "P1D", "P1D, align: calendar"]), 5, "");
  return `plans:\n  small: { ${small} }\n${hasLarge ? `  large: { ${large} }\n` : ""}`;
}

/** Up to three caps. */
function capsOf(random: Random): string {
  const caps = [
    `{ credits: ${random.whole(1, 12)}, every: ${random.pick(["PT20M", "PT5H"])} }`,
    `{ credits: ${random.whole(2, 40)}, every: P1D, align: calendar }`,
    `{ name: dear, credits: ${random.whole(1, 6)}, every: PT1H, models: ["${random.pick(["sm*", "*"])}"] }`,
  ].filter(() => random.chance(0.35));
  return caps.length === 0 ? "" : `, caps: [${caps.join(", ")}]`;
}

/** The configuration without its plans. */
export function configurationOf(random: Random): string {
  return `
listen: { host: 127.0.0.1, port: ${publicPort} }
operator: { host: 127.0.0.1, port: ${operatorPort}, token: ${token} }
database: postgres://inkwell:simulated@database/inkwell
log: { level: warn }
timezone: ${random.pick(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Sydney"])}
models:
  small:
    engine: upstream
    url: http://upstream/v1
    model: small
    context_window: 4096
    template_tokens: 16
    parallel: ${random.pick([2, 8])}
    headers_seconds: 20
    idle_seconds: 10
    price: { prompt: ${price.prompt}, completion: ${price.completion} }
limits: { queue: 16, drain_seconds: 5 }
`;
}

/** The `events` section, if the world has one. */
export function eventsOf(random: Random): string {
  const endpoint = (name: string, more: string) =>
    `    ${name}: { url: ${receiverOrigin}/${name}, secret: "whsec_${Buffer.alloc(24, name).toString("base64")}"${more} }\n`;
  const thresholds = random.pick(["[80, 90, 100]", "[50]", "[1, 99, 100]"]);
  const second = random.chance(0.5) ? endpoint("some", ', types: ["balance.*", account.suspended]') : "";
  const section = `events:\n  thresholds: ${thresholds}\n  endpoints:\n${endpoint("all", "")}${second}`;
  return random.chance(0.6) ? section : "";
}
