/**
 * The settings of a configuration as people see them: with every default, in the shape of the
 * file. For secrets, only whether they are set.
 */
import { isDeepStrictEqual } from "node:util";
import { limitsObject } from "../accounts/plan-limits.ts";
import { type PersonKeys, personKeysDefault } from "../accounts/portal-viewer.ts";
import { databaseText } from "../config/database.ts";
import { type EventsConfig, type MailConfig, mailTypes } from "../config/events.ts";
import type { Config } from "../config/load.ts";
import type { ModelConfig } from "../config/model.ts";
import type { TracingConfig } from "../config/tracing.ts";
import { defaultsObject } from "../http/openai-format/response.ts";
import type { Plan } from "../ledger/plan.ts";
import { withoutLogin } from "../model-files/source.ts";
import { given } from "../objects.ts";
import { dayMs, grouped } from "../units.ts";

/** Returns the endpoint as the file names it, without the path that the service adds. */
export function endpointOf({ url }: TracingConfig): string {
  return withoutLogin(url.replace(/\/v1\/traces$/, ""));
}

/**
 * Returns the configuration in the shape of the file, with every default. Settings without a value
 * are undefined, which JSON leaves out. For secrets, only whether they are set.
 */
export function shownSettings(config: Config) {
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
      support_credits: operator.supportCredits,
    },
    portal: config.portal === null ? undefined : { ...config.portal, url: config.portal.url ?? undefined },
    sign_in: config.signIn === null ? undefined : signInSettings(config.signIn),
    data: config.dataDir,
    models_dir: config.modelsDir,
    database: databaseText(config.database),
    workers: config.workers,
    timezone: config.timezone,
    currency:
      config.currency === null
        ? undefined
        : { code: config.currency.code, credits_1000: config.currency.priceMicro / 1_000_000 },
    plans: Object.fromEntries(
      [...config.plans.values()].map((plan) => [
        plan.id,
        { ...planSettings(plan), keys: keysSettings(config.personKeys.get(plan.id)) },
      ]),
    ),
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
    events: config.events === null ? undefined : eventsSettings(config.events),
  };
}

function eventsSettings({ endpoints, mail, ...events }: EventsConfig) {
  return {
    thresholds: events.thresholdPercents,
    expiring_days: events.expiringMs / dayMs,
    networks: events.networks,
    endpoints: Object.fromEntries(
      endpoints.map(({ name, url, secrets, types }) => [
        name,
        {
          url,
          secret: "configured",
          previous_secret: secrets.length === 1 ? undefined : "configured",
          types,
        },
      ]),
    ),
    mail: mail === null ? undefined : mailSettings(mail),
  };
}

function mailSettings({ user, password, types, templates, ...mail }: MailConfig) {
  return {
    ...mail,
    user: user ?? undefined,
    password: password === null ? undefined : "configured",
    off: mailTypes.filter((type) => !types.includes(type)),
    templates: templates ?? undefined,
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

/** Returns the rights of people over their keys; undefined for the usual ones. */
function keysSettings(keys: PersonKeys = personKeysDefault) {
  const { most, life } = keys;
  return isDeepStrictEqual(keys, personKeysDefault) ? undefined : { most, life: life ?? undefined };
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

export function modelText(model: ModelConfig): string {
  const { prompt, completion } = model.price;
  const price = `${grouped(prompt)} / ${grouped(completion)} credits per million prompt / completion tokens`;
  const sources = model.engine === "llama" ? [model.source] : model.urls;
  return `${model.id}: ${model.engine}, ${sources.map(shownSource).join(", ")}, ${price}`;
}

/** Returns a source without the parts of its URL that may be secret. */
export function shownSource(source: string): string {
  if (!/^https?:/i.test(source)) return source;
  const { origin, pathname } = new URL(source);
  return withoutLogin(origin + pathname);
}
