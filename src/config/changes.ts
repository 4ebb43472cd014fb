/**
 * Compares the running configuration with a new one: what a reload changes, and what needs a
 * restart. Pure.
 *
 * Settings have the names of inkwell.yaml. The environment of a process does not change, so its
 * variables are not compared.
 */
import { isDeepStrictEqual } from "node:util";
import { personKeysDefault } from "../accounts/portal-viewer.ts";
import type { SettingChange } from "../accounts/setting-changes.ts";
import type { PlanChanges } from "../ledger/plan-section.ts";
import type { EpochMs } from "../units.ts";
import type { ServiceLimits } from "./limits.ts";
import type { Config } from "./load.ts";
import type { ModelConfig } from "./model.ts";

interface SettingChanges {
  /** Ids of models. `changed`: a setting other than the price. */
  models: { added: string[]; removed: string[]; changed: string[] };
  /** Ids of models whose price changes. */
  prices: string[];
  /** Other settings that a reload applies. */
  settings: string[];
  /** Settings that differ but keep their values until the next start. */
  needsRestart: string[];
}

/** The result of making the plans of the configuration current. */
export interface AppliedPlansReport extends PlanChanges {
  /** Sentences for the operator. */
  warnings: string[];
}

/** The result of a reload that succeeded. */
export interface ReloadReport extends SettingChanges {
  atMs: EpochMs;
  /**
   * Ids of plans, compared with those of the database. `retired`: the plan left the configuration;
   * its accounts keep it. `superseded`: the section was replaced by a newer one before, and is not
   * applied.
   */
  plans: { added: string[]; changed: string[]; retired: string[]; superseded: boolean };
  /** Sentences for the operator. */
  warnings: string[];
}

/** What a reload would change, with values as text. Secrets are not shown. */
export interface ReloadPreview {
  changes: SettingChange[];
  /** Names of settings that keep their values until the next start. */
  needsRestart: string[];
  /** Newer plans have replaced those of the configuration, so that it changes no plan. */
  superseded: boolean;
  /** Sentences for the operator. */
  warnings: string[];
}

/** The last reload that was tried. */
export interface LastReload {
  atMs: EpochMs;
  successful: boolean;
}

/** Whether the settings of both configurations are the same, apart from plans. */
export function isEmpty({ models, prices, settings, needsRestart }: SettingChanges): boolean {
  const lists = [...Object.values(models), prices, settings, needsRestart];
  return lists.every((list: string[]) => list.length === 0);
}

const serviceLimitNames: Record<keyof ServiceLimits, string> = {
  bodyBytesMax: "body_bytes",
  uploadBytesMax: "upload_bytes",
  uploadMs: "upload_seconds",
  refusedBytesPerMinute: "refused_bytes_per_minute",
  refusedMsPerMinute: "refused_milliseconds_per_minute",
  connectionsMax: "connections",
  connectionsPerAddressMax: "connections_per_address",
  trustedProxies: "trusted_proxies",
  messagesMax: "messages",
  keysMax: "keys",
  queueMax: "queue",
  unreadyMs: "unready_seconds",
  drainMs: "drain_seconds",
  streamIdleMs: "stream_idle_seconds",
};

/** Settings by their names. */
type Settings = ReadonlyMap<string, unknown>;

/** Returns the settings that a reload applies, besides `models` and `plans`. */
function applied({ limits, listen, operator, cors, log, timezone, events, ...rest }: Config): Settings {
  const values = new Map(Object.entries(limits));
  const { hosts, url, supportCredits } = operator;
  return new Map<string, unknown>([
    ...Object.entries(serviceLimitNames).map(([key, name]) => [`limits.${name}`, values.get(key)] as const),
    ...named("listen", { url: listen.url }),
    ...named("operator", { hosts, url, supportCredits }),
    ["timezone", timezone] as const,
    ["currency", rest.currency] as const,
    ["sign_in", withoutPlaces(rest.signIn)] as const,
    ...[...rest.personKeys]
      .filter(([, keys]) => !isDeepStrictEqual(keys, personKeysDefault))
      .map(([id, keys]) => [`plans.${id}.keys`, keys] as const),
    ...named("cors", { origins: cors.origins }),
    ...named("log", { level: log.level }),
    ["events", events] as const,
  ]);
}

function atStart({ listen, operator, dataDir, modelsDir, ...rest }: Config): Settings {
  const { host, port, token } = operator;
  const { portal, database, tracing, workers } = rest;
  return new Map<string, unknown>([
    ...named("listen", { host: listen.host, port: listen.port }),
    ...named("operator", { host, port, token }),
    ...Object.entries({ portal, data: dataDir, models_dir: modelsDir, database, tracing, workers }),
  ]);
}

/** A setting that only moves to another line is not changed. */
function withoutPlaces(signIn: Config["signIn"]) {
  if (signIn === null) return null;
  const { where: _where, ...settings } = signIn;
  return settings;
}

function named(section: string, settings: object): [string, unknown][] {
  return Object.entries(settings).map(([name, value]) => [`${section}.${name}`, value]);
}

function differing(running: Settings, next: Settings): string[] {
  const names = new Set([...running.keys(), ...next.keys()]);
  return [...names].filter((name) => !isDeepStrictEqual(running.get(name), next.get(name)));
}

export function changesBetween(running: Config, next: Config): SettingChanges {
  return {
    models: entriesBetween(byId(running.models), byId(next.models), settingsOf),
    prices: entriesBetween(byId(running.models), byId(next.models), ({ price }) => price).changed,
    settings: differing(applied(running), applied(next)),
    needsRestart: differing(atStart(running), atStart(next)),
  };
}

/** Returns the next configuration with the running values of settings that need a restart. */
export function applicable(running: Config, next: Config): Config {
  const { host, port, token } = running.operator;
  const { host: publicHost, port: publicPort } = running.listen;
  const { portal, dataDir, modelsDir, database, tracing, workers } = running;
  return {
    ...next,
    listen: { ...next.listen, host: publicHost, port: publicPort },
    operator: { ...next.operator, host, port, token },
    portal,
    dataDir,
    modelsDir,
    database,
    tracing,
    workers,
  };
}

/** Whether signing in works as before: begun sign-ins and what is known of the issuer stay. */
export function isSameSignIn(running: Config, next: Config): boolean {
  return isDeepStrictEqual(withoutPlaces(running.signIn), withoutPlaces(next.signIn));
}

/** Whether the model can keep its engine: only its price or what it adds to requests differs. */
export function keepsEngine(running: ModelConfig, next: ModelConfig): boolean {
  return isDeepStrictEqual(engineOf(running), engineOf(next));
}

function engineOf(model: ModelConfig) {
  const { price: _price, outputTokensMax: _max, defaults: _defaults, ...settings } = model;
  const { systemPrompt: _systemPrompt, where: _where, ...engine } = settings;
  return engine;
}

function settingsOf(model: ModelConfig) {
  const { price: _price, where: _where, ...settings } = model;
  return settings;
}

function byId(models: readonly ModelConfig[]): ReadonlyMap<string, ModelConfig> {
  return new Map(models.map((model) => [model.id, model]));
}

function entriesBetween<T>(
  running: ReadonlyMap<string, T>,
  next: ReadonlyMap<string, T>,
  comparable: (entry: T) => unknown,
) {
  const changed = [...next].filter(([id, entry]) => {
    const before = running.get(id);
    return before !== undefined && !isDeepStrictEqual(comparable(before), comparable(entry));
  });
  return {
    added: [...next.keys()].filter((id) => !running.has(id)),
    removed: [...running.keys()].filter((id) => !next.has(id)),
    changed: changed.map(([id]) => id),
  };
}
