/**
 * Time until each page of the console and the portal shows its data, in Chromium, with a large
 * ledger on SQLite: an account has half of all charges. Each view loads the page anew, with the
 * scripts from the browser's cache. The first view of a page is not in its median.
 *
 *   npm run bench -- pages [--accounts 100000] [--charges 10000000] [--days 365] [--rounds 5] \
 *     [--file FILE]
 *
 * `--file` keeps the ledger for further runs. Making one takes minutes.
 */
import { startConsoleService, type Visit, visit } from "../test/fixtures/browser.ts";
import { launchChromium } from "../test/fixtures/chromium.ts";
import { loaded, open } from "../test/fixtures/console.ts";
import { openPortal } from "../test/fixtures/portal-pages.ts";
import { optionsOf } from "./options.ts";
import { account, fillLarge, keys } from "./portal.ts";
import { medianOf } from "./servers.ts";

const consolePages = [
  "",
  "/accounts",
  "/accounts?search=99",
  "/accounts?plan=bench",
  "/plans",
  "/usage",
  "/usage?by=model",
  "/usage?by=account",
  "/people",
  "/links",
  "/events",
  "/operators",
  "/health",
  ...["", "/keys", "/usage", "/receipts", "/journal"].map((topic) => `/accounts/${account}${topic}`),
];
const portalPages = ["/", "/requests", "/usage", "/usage?by=model", "/keys", "/models", "/start", "/chat"];

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    accounts: "100000",
    charges: "10000000",
    days: "365",
    rounds: "5",
    file: "",
  });
  const { file } = values;
  const [accounts, charges, days] = [values.accounts, values.charges, values.days].map(Number) as [
    number,
    number,
    number,
  ];
  const fill = (folder: string) => fillLarge(folder, { accounts, charges, days, file });
  await using service = await startConsoleService({ pages: "portal", fill });
  await using chromium = await launchChromium();
  const table: Record<string, string>[] = [];
  const { secret = "" } = keys[0] ?? {};
  for (const { name, paths, origin, signIn } of [
    { name: "/console", paths: consolePages, origin: `${service.url}/console`, signIn: open },
    {
      name: "",
      paths: portalPages,
      origin: service.portalUrl,
      signIn: (to: Pick<Visit, "context" | "page" | "service">, path: string) => openPortal(to, path, secret),
    },
  ]) {
    await using watched = await visit(chromium.browser, [service.url, service.portalUrl]);
    const { page, context } = watched;
    await signIn({ context, page, service }, paths[0] ?? "");
    for (const path of paths) {
      const tookMs: number[] = [];
      for (let round = 0; round <= Number(values.rounds); round += 1) {
        const beganMs = performance.now();
        await page.goto(`${origin}${path}`);
        await loaded(page);
        tookMs.push(performance.now() - beganMs);
      }
      const [first = Number.NaN, ...others] = tookMs;
      const times = { "first ms": first.toFixed(0), "median ms": medianOf(others).toFixed(0) };
      table.push({ page: name + path, ...times });
    }
    watched.assertExpected();
  }
  console.log(`${accounts} accounts, ${charges} charges of ${days} days`);
  console.table(table);
}
