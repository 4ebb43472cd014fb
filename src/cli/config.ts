/**
 * `inkwell config check`: checks the configuration as a start would, and shows the resulting
 * settings.
 */

import path from "node:path";
import { Command } from "commander";
import { limitsObject } from "../accounts/plan-limits.ts";
import { grantedBy } from "../accounts/plan-objects.ts";
import { capWarnings } from "../config/cap-warnings.ts";
import { databaseText } from "../config/database.ts";
import { type Config, configurationError } from "../config/load.ts";
import type { ModelConfig } from "../config/model.ts";
import { operatorNames, tokenFileName } from "../config/operator.ts";
import type { TracingConfig } from "../config/tracing.ts";
import { unpayableModels } from "../config/unpayable.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { defaultsObject } from "../http/openai-format/response.ts";
import { inkwell } from "../invocation.ts";
import { newestVersion, type Plan } from "../ledger/plan.ts";
import { planChanges } from "../ledger/plan-section.ts";
import { withoutLogin } from "../model-files/source.ts";
import { given } from "../objects.ts";
import { checkOnline } from "../sign-in/online-check.ts";
import { inUseWarning, type PlansInUse, retiredInUse } from "../store/plans.ts";
import { grouped } from "../units.ts";
import type { Cli } from "./cli.ts";
import { count, table } from "./format.ts";
import { fileOf, shownSource, sourcesOf } from "./models.ts";
import { planChangesText, planText } from "./plans.ts";

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
  cli.print(effective(config), table(rows, columns, cli));
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
  const { catalog, fingerprints, accounts } = found;
  const changes = planChanges(catalog, config.plans, { fingerprints, force: false, nowMs: 0 });
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

function modelText(model: ModelConfig): string {
  const { prompt, completion } = model.price;
  const price = `${grouped(prompt)} / ${grouped(completion)} credits per million prompt / completion tokens`;
  return `${model.id}: ${model.engine}, ${sourcesOf(model).join(", ")}, ${price}`;
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

/** Returns the endpoint as the file names it, without the path that the service adds. */
function endpointOf({ url }: TracingConfig): string {
  return withoutLogin(url.replace(/\/v1\/traces$/, ""));
}

/**
 * Returns the configuration in the shape of the file, with every default. Settings without a value
 * are undefined, which JSON leaves out. For secrets, only whether they are set.
 */
function effective(config: Config) {
  const { limits, operator, tracing } = config;
  return {
    file: config.file,
    listen: { ...config.listen, url: config.listen.url ?? undefined },
    operator: {
      host: operator.host,
      port: operator.port,
      token: operator.token === null ? "in the data folder" : "configured",
      url: operator.url ?? undefined,
      hosts: operator.hosts,
    },
    portal: config.portal === null ? undefined : { ...config.portal, url: config.portal.url ?? undefined },
    sign_in: config.signIn === null ? undefined : signInSettings(config.signIn),
    data: config.dataDir,
    models_dir: config.modelsDir,
    database: databaseText(config.database),
    plans: Object.fromEntries([...config.plans.values()].map((plan) => [plan.id, planSettings(plan)])),
    models: Object.fromEntries(config.models.map((model) => [model.id, modelSettings(model)])),
    limits: {
      body_bytes: limits.bodyBytesMax,
      upload_bytes: limits.uploadBytesMax,
      upload_seconds: limits.uploadMs / 1000,
      refused_bytes_per_minute: limits.refusedBytesPerMinute,
      refused_milliseconds_per_minute: limits.refusedMsPerMinute,
      connections: limits.connectionsMax ?? undefined,
      connections_per_address: limits.connectionsPerAddressMax ?? undefined,
      trusted_proxies: limits.trustedProxies,
      messages: limits.messagesMax,
      keys: limits.keysMax,
      queue: limits.queueMax,
      unready_seconds: limits.unreadyMs / 1000,
      drain_seconds: limits.drainMs / 1000,
      stream_idle_seconds: limits.streamIdleMs / 1000,
    },
    cors: config.cors,
    log: config.log,
    tracing:
      tracing === null ? undefined : { endpoint: endpointOf(tracing), service_name: tracing.serviceName },
  };
}

function signInSettings({ where: _where, clientSecret, ...settings }: NonNullable<Config["signIn"]>) {
  const rule = ({ kind, value, ...rest }: { kind: string; value: string }) => ({ [kind]: value, ...rest });
  return {
    issuer: settings.issuer,
    client_id: settings.clientId,
    client_secret: clientSecret === null ? undefined : "configured",
    name: settings.name,
    groups_claim: settings.groupsClaim,
    operators: settings.operators.map(rule),
    accounts: settings.accounts.map(rule),
    trust_email: settings.trustsEmail,
    link_contacts: settings.linksContacts,
    lapse: settings.lapse,
    formerly: settings.formerly ?? undefined,
    contact: settings.contact ?? undefined,
  };
}

function planSettings({ base, overage, caps, timezone, limits, models }: Plan) {
  return { base, overage, caps, timezone, limits: given(limitsObject(limits)), models };
}

function modelSettings(model: ModelConfig) {
  const { engine, defaults, systemPrompt } = model;
  const { prompt, completion, cachedPrompt } = model.price;
  const common = {
    context_window: model.contextWindow,
    max_output_tokens: model.outputTokensMax ?? undefined,
    parallel: model.parallel,
    defaults: Object.keys(defaults).length === 0 ? undefined : defaultsObject(defaults),
    system_prompt: systemPrompt ?? undefined,
    price: { prompt, completion, cached_prompt: cachedPrompt },
  };
  if (model.engine === "llama") {
    return {
      engine,
      source: shownSource(model.source),
      ...common,
      threads: model.threads ?? undefined,
      paused_bytes: model.pausedBytesMax,
      gpu: model.gpu,
      load_seconds: model.loadMs === null ? undefined : model.loadMs / 1000,
      environment: Object.keys(model.environment),
      reasoning: model.reasoning === null ? undefined : { tags: model.reasoning.tags ?? [] },
    };
  }
  const { reasoning } = model;
  return {
    engine,
    urls: model.urls.map(shownSource),
    key: model.key === null ? undefined : "configured",
    model: model.model,
    dialect: model.dialect,
    ...common,
    connect_seconds: model.connectMs / 1000,
    headers_seconds: model.headersMs / 1000,
    idle_seconds: model.idleMs / 1000,
    template_tokens: model.templateTokens,
    reserved: model.reserved,
    send_stop: model.sendStop,
    pass_errors: model.passErrors,
    reasoning:
      reasoning === null
        ? undefined
        : { ...reasoning, field: reasoning.field ?? undefined, tags: reasoning.tags ?? undefined },
  };
}
