/**
 * The processes (nodes) that share one database. Each node sends heartbeats with the fingerprint
 * of its configuration, and compares the fingerprints of the other nodes. Nodes with different
 * models or prices would charge in two ways.
 *
 * Guarantees that a reported difference existed at the last heartbeat, to a node that was alive
 * then. Differences are only reported: a rolling change of the configuration differs for as long
 * as it takes.
 */
import type { Jobs } from "../jobs.ts";
import type { EpochMs } from "../units.ts";

/** The parts of the configuration that must be equal on all nodes: a description by name. */
export type ConfigFingerprint = Readonly<Record<string, string>>;

interface NodeSelf {
  id: string;
  version: string;
  fingerprint: ConfigFingerprint;
}

export interface NodeRow extends NodeSelf {
  startedMs: EpochMs;
  /** The time of its last heartbeat. */
  seenMs: EpochMs;
}

export interface NodeRegistry {
  /**
   * Sends a heartbeat. Returns all living nodes, this one included, in the order of their start.
   */
  heartbeat(self: NodeSelf): Promise<NodeRow[]>;
  /** Removes a node that stops. */
  leave(id: string): Promise<void>;
}

/** A node without a heartbeat for this time is not alive. */
export const silentMs = 20_000;
export const heartbeatEveryMs = 5_000;

/** The registry of a store that no other node shares. */
export function soleNode(): NodeRegistry {
  const startedMs = Date.now();
  return {
    heartbeat: async (self) => [{ ...self, startedMs, seenMs: Date.now() }],
    leave: async () => {},
  };
}

export interface NodeView extends NodeRow {
  isSelf: boolean;
  /** Names of the parts that differ from this node. */
  differs: readonly string[];
}

export interface NodeWatch {
  /** The living nodes at the last heartbeat. */
  nodes(): readonly NodeView[];
  /**
   * Reports another fingerprint of this node from now on. Resolves after a heartbeat with it,
   * which may have failed.
   */
  changed(fingerprint: ConfigFingerprint): Promise<void>;
  /** Stops the heartbeats and removes this node. */
  stop(): Promise<void>;
}

interface NodeWatchOptions {
  jobs: Jobs;
  everyMs: number;
  /** Called with the nodes that differ when they change; empty when all nodes agree again. */
  onDiffers(nodes: readonly NodeView[]): void;
}

/** Sends a heartbeat before it resolves, which may fail, and then every `everyMs`. */
export async function startNodeWatch(
  registry: NodeRegistry,
  { id, version, fingerprint: first }: NodeSelf,
  { jobs, everyMs, onDiffers }: NodeWatchOptions,
): Promise<NodeWatch> {
  let seen: NodeView[] = [];
  let reported = "";
  let fingerprint = first;

  async function heartbeat(): Promise<void> {
    const sent = fingerprint;
    const rows = await registry.heartbeat({ id, version, fingerprint: sent });
    seen = rows.map((row) => ({
      ...row,
      isSelf: row.id === id,
      differs: differences(sent, row.fingerprint),
    }));
    const differing = seen.filter((node) => node.differs.length > 0);
    const report = JSON.stringify(differing.map(({ id, differs }) => [id, differs]));
    if (report !== reported && !(reported === "" && differing.length === 0)) onDiffers(differing);
    reported = report;
  }

  const heartbeats = jobs.start({
    name: "send_heartbeats",
    everyMs,
    failure: "the heartbeat to the other nodes failed",
    run: heartbeat,
  });
  await heartbeats.run();
  return {
    nodes: () => seen,
    async changed(next) {
      fingerprint = next;
      // A heartbeat that is under way has the earlier fingerprint.
      await heartbeats.runAfresh();
    },
    async stop() {
      await heartbeats.stop();
      // If this fails, the missing heartbeats show that the node has stopped.
      await registry.leave(id).catch(() => {});
    },
  };
}

/** Returns the names that only one fingerprint has, or that have different values. */
function differences(one: ConfigFingerprint, other: ConfigFingerprint): string[] {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].filter((name) => one[name] !== other[name]).sort();
}
