/**
 * The processes that share one database: each says now and then that it lives and what its configuration says, and
 * looks at what the others say. Nodes that disagree about plans or prices charge and refill accounts in two ways.
 *
 * Guarantees that what a node reports to differ did differ at its last look, from a node that lived then. It decides
 * nothing and stops nobody: a rolling change of the configuration differs for as long as it takes.
 */
import type { EpochMs } from "../units.ts";

/** What must be the same on all nodes: by the name that an operator knows it by, in words. */
export type ConfigFingerprint = Readonly<Record<string, string>>;

export interface NodeSelf {
  id: string;
  version: string;
  fingerprint: ConfigFingerprint;
}

export interface NodeRow extends NodeSelf {
  startedMs: EpochMs;
  /** When it last said that it lives. */
  seenMs: EpochMs;
}

export interface NodeRegistry {
  /** Says that this node lives; answers with all that do, this one included, in the order of their start. */
  heartbeat(self: NodeSelf): Promise<NodeRow[]>;
  /** This node ends. */
  leave(id: string): Promise<void>;
}

/** Without a word for so long, a node is not alive. */
export const silentMs = 20_000;
export const heartbeatEveryMs = 5_000;

/** Of a store that no other node shares. */
export function soleNode(): NodeRegistry {
  const startedMs = Date.now();
  return {
    heartbeat: async (self) => [{ ...self, startedMs, seenMs: Date.now() }],
    leave: async () => {},
  };
}

export interface NodeView extends NodeRow {
  isSelf: boolean;
  /** Names of what differs from this node. */
  differs: readonly string[];
}

export interface NodeWatch {
  /** At the last look. */
  nodes(): readonly NodeView[];
  /** Resolves when this node has taken its leave. */
  stop(): Promise<void>;
}

export interface NodeWatchOptions {
  everyMs: number;
  /** Called when what differs has changed; empty when all agree again. */
  onDiffers(nodes: readonly NodeView[]): void;
  onError(error: unknown): void;
}

/** Looks once before it resolves, and every `everyMs` from then on. A look that fails is told; the next one tries again. */
export async function startNodeWatch(
  registry: NodeRegistry,
  self: NodeSelf,
  { everyMs, onDiffers, onError }: NodeWatchOptions,
): Promise<NodeWatch> {
  let seen: NodeView[] = [];
  let told = "";
  let underWay: Promise<void> | null = null;

  async function look(): Promise<void> {
    const rows = await registry.heartbeat(self);
    seen = rows.map((row) => ({
      ...row,
      isSelf: row.id === self.id,
      differs: differences(self.fingerprint, row.fingerprint),
    }));
    const differing = seen.filter((node) => node.differs.length > 0);
    const telling = JSON.stringify(differing.map(({ id, differs }) => [id, differs]));
    if (telling !== told && !(told === "" && differing.length === 0)) onDiffers(differing);
    told = telling;
  }

  function start(): Promise<void> {
    underWay ??= look()
      .catch(onError)
      .finally(() => {
        underWay = null;
      });
    return underWay;
  }

  await start();
  const timer = setInterval(start, everyMs);
  return {
    nodes: () => seen,
    async stop() {
      clearInterval(timer);
      await underWay;
      // What cannot be said now is seen by the silence that follows.
      await registry.leave(self.id).catch(onError);
    },
  };
}

/** Names of what only one of them has, or both in different words. */
export function differences(one: ConfigFingerprint, other: ConfigFingerprint): string[] {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].filter((name) => one[name] !== other[name]).sort();
}
