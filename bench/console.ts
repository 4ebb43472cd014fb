/**
 * Processor time that open pages of the console cost the service: the overview on many pages, and
 * as many pages of different accounts. Small requests change the numbers meanwhile. The floor is
 * the same service with the same requests and no page.
 *
 *   npm run bench -- console [--pages 100] [--seconds 20] [--requests 1]
 *
 * `--requests` is the number of requests a second. Linux only: it reads the time from /proc.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { type ConsoleService, startConsoleService } from "../test/fixtures/browser.ts";
import { ask } from "../test/fixtures/http-stream.ts";
import { optionsOf } from "./options.ts";
import { ownProcessorMs } from "./processes.ts";
import { pageHeader, signIn } from "./sign-in.ts";

/** A session may read 240 times a minute. */
const pagesPerSession = 4;
/** As pages ask while something runs (src/web/shared/live.tsx). */
const everyMs = 2_000;

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, { pages: "100", seconds: "20", requests: "1" });
  const [pages, seconds, requests] = [values.pages, values.seconds, values.requests].map(Number) as [
    number,
    number,
    number,
  ];
  await using service = await startConsoleService();
  for (let n = 0; n < pages; n += 1)
    await service.call("POST", "/admin/accounts", { id: `page-${n}`, plan: "starter" });
  const kinds: Record<string, (n: number) => string> = {
    "no page": () => "",
    overview: () => "/admin/overview",
    accounts: (n) => `/admin/accounts/page-${n}/live`,
    "one account": () => "/admin/accounts/default/live",
  };
  // A young process compiles much of its code meanwhile.
  await load(service, 10, 10);
  const perMinute = new Map<string, number>();
  const table: Record<string, string | number>[] = [];
  for (const [kind, pathOf] of Object.entries(kinds)) {
    const opened = kind === "no page" ? [] : await openPages(service, pages, pathOf);
    // The first snapshots and compiled code are not measured.
    await load(service, 2, requests);
    const before = processorSeconds(service);
    await load(service, seconds, requests);
    perMinute.set(kind, ((processorSeconds(service) - before) * 60) / seconds);
    const answers = opened.map(({ close }) => close());
    const added = (perMinute.get(kind) ?? 0) - (perMinute.get("no page") ?? 0);
    table.push({
      pages: kind === "no page" ? 0 : pages,
      of: kind,
      "CPU s/minute": (perMinute.get(kind) ?? 0).toFixed(2),
      "added by pages": added.toFixed(2),
      "answers/page":
        answers.length === 0 ? "-" : (answers.reduce((sum, n) => sum + n, 0) / pages).toFixed(0),
    });
  }
  console.log(`The service's process during ${seconds} s with ${requests} requests a second`);
  console.table(table);
}

interface OpenPage {
  /** Returns the number of answers that have come. */
  close(): number;
}

async function openPages(
  service: ConsoleService,
  pages: number,
  pathOf: (n: number) => string,
): Promise<OpenPage[]> {
  const opened: OpenPage[] = [];
  let cookie = "";
  for (let n = 0; n < pages; n += 1) {
    if (n % pagesPerSession === 0)
      cookie = await signIn(`${service.url}/admin/session`, { token: service.token });
    opened.push(await openPage(service.url + pathOf(n), cookie));
    // They were not opened in the same moment.
    await sleep(everyMs / pages);
  }
  return opened;
}

async function openPage(url: string, cookie: string): Promise<OpenPage> {
  let tag = "";
  let answers = 0;
  const ask = async () => {
    const response = await fetch(url, { headers: { cookie, ...pageHeader, "if-none-match": tag } });
    if (!response.ok && response.status !== 304) throw new Error(`${url}: ${response.status}`);
    await response.text();
    tag = response.headers.get("etag") ?? "";
    answers += 1;
  };
  await ask();
  const timer = setInterval(ask, everyMs);
  return {
    close() {
      clearInterval(timer);
      return answers;
    },
  };
}

/** Sends requests at an even pace. */
async function load({ apiUrl: url, key }: ConsoleService, seconds: number, requests: number): Promise<void> {
  const count = Math.round(seconds * requests);
  if (count === 0) await sleep(seconds * 1000);
  for (let n = 0; n < count; n += 1) {
    const paced = sleep((seconds * 1000) / count);
    const response = await ask({ url, key, max_tokens: 2 });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    await response.text();
    await paced;
  }
}

/** Time of all threads of the service. The engine is another process. */
function processorSeconds({ program }: ConsoleService): number {
  return ownProcessorMs(program.process.pid ?? Number.NaN) / 1000;
}
