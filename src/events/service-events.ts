/**
 * Events that no commit causes: models that stop or start to work, keys that expire soon,
 * operators who sign in. The process that notices one writes it.
 */
import type { Catalog } from "../chat/catalog.ts";
import type { EngineServer, EngineState } from "../chat/engine.ts";
import type { AccessEvent, TellAccess } from "../ledger/events.ts";
import type { Store } from "../store/store.ts";

interface ServiceEventsOptions {
  store: Pick<Store, "events" | "times">;
  catalog: Pick<Catalog, "all">;
  /** This process. */
  node: string;
}

export class ServiceEvents {
  readonly #options: ServiceEventsOptions;
  /** Of the models that worked or did not work at the last look. */
  readonly #states = new Map<string, EngineState>();
  /** The last event about an empty account, by model and server. */
  readonly #outages = new Map<string, string>();

  constructor(options: ServiceEventsOptions) {
    this.#options = options;
  }

  /** Adds an event for each model whose state is another one than at the last look. */
  async lookAtModels(): Promise<void> {
    const { store, catalog, node } = this.#options;
    for (const { id: model, engine } of catalog.all()) {
      const { state } = engine;
      if (state !== "ready" && state !== "unavailable") continue;
      const before = this.#states.get(model) ?? "ready";
      if (before !== state) {
        const type = state === "ready" ? "model.up" : "model.down";
        await this.#add(type, { model, node }, `${type}:${node}:${model}:${store.times().nowMs}`);
      }
      this.#states.set(model, state);
      for (const server of engine.servers?.() ?? []) {
        if (server.state === "out_of_credit") await this.#outOfCredit(model, server);
      }
    }
  }

  async #outOfCredit(model: string, { url: server, sinceMs }: EngineServer): Promise<void> {
    const { node } = this.#options;
    const cause = `model.out_of_credit:${node}:${model}:${server}:${sinceMs}`;
    if (this.#outages.get(`${model} ${server}`) === cause) return;
    await this.#add("model.out_of_credit", { model, node, server }, cause);
    this.#outages.set(`${model} ${server}`, cause);
  }

  /** Adds one event for each time at which a key expires. */
  async findExpiringKeys(withinMs: number): Promise<void> {
    const { store } = this.#options;
    const { atMs } = store.times();
    for (const { account, id, name, expiresMs } of await store.events.keysExpiring(atMs, atMs + withinMs)) {
      const data = { key: id, name, expires_at: new Date(expiresMs).toISOString() };
      const cause = `key.expiring:${id}:${expiresMs}`;
      await store.events.add({ type: "key.expiring", atMs, data, account, cause });
    }
  }

  access: TellAccess = async (type, data, id) => {
    await this.#add(type, data, `${type}:${id}`);
  };

  async #add(
    type: "model.up" | "model.down" | "model.out_of_credit" | AccessEvent,
    data: Record<string, string | number>,
    cause: string,
  ): Promise<void> {
    const { store } = this.#options;
    await store.events.add({ type, atMs: store.times().atMs, data, account: null, cause });
  }
}
