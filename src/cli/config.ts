/**
 * `inkwell config check`: checks the configuration as a start would, and shows the resulting
 * settings.
 */

import path from "node:path";
import { Command } from "commander";
import { grantedBy } from "../accounts/plan-objects.ts";
import { planText } from "../accounts/plan-text.ts";
import { endpointOf, modelText, shownSettings } from "../app/shown-settings.ts";
import { capWarnings } from "../config/cap-warnings.ts";
import { databaseText } from "../config/database.ts";
import { type Config, configurationError } from "../config/load.ts";
import { operatorNames, tokenFileName } from "../config/operator.ts";
import { unpayableModels } from "../config/unpayable.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { inkwell } from "../invocation.ts";
import { newestVersion, type Plan } from "../ledger/plan.ts";
import { planChanges } from "../ledger/plan-section.ts";
import { checkOnline } from "../sign-in/online-check.ts";
import { inUseWarning, type PlansInUse, retiredInUse } from "../store/plans.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { count, table } from "./format.ts";
import { fileOf } from "./models.ts";
import { planChangesText } from "./plans.ts";

export function configCommand(cli: Cli): Command {
  const command = new Command("config").description(
    "check the configuration and show the resulting settings",
  );
  command
    .command("check")
    .description("list all problems of the configuration, or its settings; secrets are left out")
    .option("--online", "also ask the issuer of sign_in whether it knows this service")
    .action((options: { online?: true }) => check(cli, options.online === true));
  return command;
}

const columns = [
  { head: "SETTING", cell: ([setting]: readonly [string, string]) => setting },
  { head: "VALUE", cell: ([, value]: readonly [string, string]) => value },
];

async function check(cli: Cli, isOnline: boolean): Promise<void> {
  const config = await cli.config();
  if (config.signInProblems.length > 0) throw configurationError(config.signInProblems);
  await requireModelFiles(config);
  const { limits, cors, tracing } = config;
  const rows: [setting: string, value: string][] = [
    ["file", config.file ?? "none: defaults and environment"],
    ["public API", listenerText(config.listen)],
    ["operator API", `${config.operator.host} port ${config.operator.port}, token ${tokenText(config)}`],
    ["operator hosts", ["IP addresses", "localhost", ...operatorNames(config.operator)].join(", ")],
    ["portal", config.portal === null ? "none" : listenerText(config.portal)],
    ["sign-in", config.signIn === null ? "none" : `${config.signIn.issuer} as ${config.signIn.clientId}`],
    ["invitations", invitationsText(config)],
    ["data", config.dataDir],
    ["model files", config.modelsDir],
    ["database", databaseText(config.database)],
    ["workers", `${config.workers}`],
    ...[...config.plans.values()].map((plan): [string, string] => [
      "plan",
      `${plan.id}: ${planText(grantedBy(plan))}`,
    ]),
    ...config.models.map((model): [string, string] => ["model", modelText(model)]),
    [
      "limits",
      `${grouped(limits.bodyBytesMax)} bytes and ${count(limits.messagesMax, "message")} a request, ${grouped(limits.queueMax)} waiting for a model`,
    ],
    [
      "uploads",
      `${grouped(limits.uploadBytesMax)} bytes at once, ${limits.uploadMs / 1000} s for a body of at most ${grouped(limits.keysMax)} keys`,
    ],
    [
      "refused work",
      `${grouped(limits.refusedBytesPerMinute)} bytes and ${grouped(limits.refusedMsPerMinute)} ms of processor time a minute for each account`,
    ],
    ["connections", connectionsText(config)],
    [
      "stopping",
      `not ready for ${limits.unreadyMs / 1000} s, then ${limits.drainMs / 1000} s for running answers`,
    ],
    ["unread streams", `kept for ${limits.streamIdleMs / 1000} s`],
    ["web pages", cors.origins.length === 0 ? "none" : cors.origins.join(", ")],
    ["log", config.log.level],
    ["traces", tracing === null ? "none" : `${endpointOf(tracing)} as ${tracing.serviceName}`],
  ];
  cli.print(shownSettings(config), table(rows, columns, cli));
  const { plans, models } = config;
  cli.remark(`The configuration is valid: ${count(plans.size, "plan")}, ${count(models.length, "model")}.`);
  const warnings = [...unpayableModels(plans.values(), models), ...capWarnings(plans.values(), models)];
  for (const { warning } of warnings) cli.remark(warning);
  await remarkPlans(cli, config);
  if (isOnline) await checkSignIn(cli, config);
}

function invitationsText({ portal, events }: Config): string {
  if (portal === null) return "impossible: there is no portal";
  if (portal.url === null) return "impossible: portal.url is missing";
  const mail = events?.mail ?? null;
  return `links to ${portal.url}${mail === null ? "" : `, by mail through ${mail.host}`}`;
}

/** Throws if the issuer does not know this service as it is configured. */
async function checkSignIn(cli: Cli, { signIn, operator, portal }: Config): Promise<void> {
  if (signIn === null) {
    cli.remark("There is no section sign_in, so there is nothing to ask an issuer.");
    return;
  }
  const callbacks = [
    { url: callbackOf(operator, "/console/signed-in"), setting: "operator.url" },
    ...(portal === null ? [] : [{ url: callbackOf(portal, "/signed-in"), setting: "portal.url" }]),
  ];
  const { problems, remarks } = await cli.spinner.during(
    () => `Asking ${signIn.issuer}`,
    () => checkOnline(signIn, callbacks),
  );
  for (const remark of remarks) cli.remark(remark);
  if (problems.length > 0) {
    const lines = problems.map((problem) => `  ${problem}`);
    throw new OperatorError(["People cannot sign in with this configuration:", ...lines].join("\n"));
  }
  cli.remark(`People can sign in at ${signIn.issuer}.`);
}

function callbackOf({ url, host, port }: { url: string | null; host: string; port: number }, path: string) {
  return new URL(path, url ?? `http://${host.includes(":") ? `[${host}]` : host}:${port}`).href;
}

/** Compares the plans with those of the ledger: what a start or a reload would change. */
async function remarkPlans(cli: Cli, config: Config): Promise<void> {
  let found: PlansInUse | null;
  try {
    found = await cli.host.services.readPlansInUse(config);
  } catch (error) {
    if (!(error instanceof OperatorError) && !(error instanceof StoreUnavailableError)) throw error;
    cli.remark(`The plans were not compared with those of the ledger: ${error.message}`);
    return;
  }
  if (found === null) {
    cli.remark("There is no ledger yet. It will begin with these plans.");
    return;
  }
  const { catalog, accounts } = found;
  const changes = planChanges(catalog, config.plans, { force: false, nowMs: 0 });
  if (changes.kind === "superseded") {
    cli.remark(
      `Newer plans have replaced those of the configuration, so a start or a reload does not apply them. To make them current: ${inkwell("plans apply")}`,
    );
  }
  if (changes.kind === "applied") {
    cli.remark("A start or a reload would change the plans of the ledger:");
    const before = [...catalog.versions.keys()].map((id) => newestVersion(catalog, id));
    cli.remark(planChangesText(grantedById(before), grantedById([...config.plans.values()]), changes));
  }
  const inUse = retiredInUse([...config.plans.keys()], accounts);
  if (inUse.length > 0) cli.remark(inUseWarning(inUse));
}

function grantedById(plans: readonly (Plan | undefined)[]) {
  return new Map(plans.flatMap((plan) => (plan === undefined ? [] : [[plan.id, grantedBy(plan)]])));
}

/** Throws if a model file cannot be used. A file that a start would download may be missing. */
async function requireModelFiles({ models, modelsDir }: Config): Promise<void> {
  const problems: string[] = [];
  for (const model of models) {
    const file = await fileOf(model, modelsDir);
    if (file !== null && file.problem !== null) problems.push(`  models.${model.id}.source: ${file.problem}`);
  }
  if (problems.length === 0) return;
  throw new OperatorError(
    ["The configuration is valid, but the service cannot start with these model files:", ...problems].join(
      "\n",
    ),
  );
}

function tokenText({ operator, dataDir }: Config): string {
  return operator.token === null ? `in ${path.join(dataDir, tokenFileName)}` : "configured";
}

function listenerText({ host, port, url }: Config["listen"]): string {
  return `${host} port ${port}${url === null ? "" : `, reached as ${url}`}`;
}

function connectionsText({ limits }: Config): string {
  const { connectionsMax, connectionsPerAddressMax, trustedProxies } = limits;
  return [
    connectionsMax === null
      ? "as many as the limit of open files allows"
      : `at most ${grouped(connectionsMax)}`,
    connectionsPerAddressMax === null
      ? "a quarter of them from one address"
      : `${grouped(connectionsPerAddressMax)} from one address`,
    ...(trustedProxies.length === 0 ? [] : [`any number from ${trustedProxies.join(", ")}`]),
  ].join(", ");
}
