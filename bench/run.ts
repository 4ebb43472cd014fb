/** `npm run bench -- NAME [options]`: runs one benchmark. Each prints one table with a ratio to a floor of the same run. */
const benchmarks: Record<string, () => Promise<{ run(args: readonly string[]): Promise<void> }>> = {
  engine: () => import("./engine.ts"),
  gateway: () => import("./gateway.ts"),
  ledger: () => import("./ledger.ts"),
  nodes: () => import("./nodes.ts"),
  storage: () => import("./storage.ts"),
  streams: () => import("./streams.ts"),
};

const [name = "", ...args] = process.argv.slice(2);
const load = benchmarks[name];
if (load === undefined) {
  console.error(`Usage: npm run bench -- ${Object.keys(benchmarks).join(" | ")} [options]`);
  process.exit(2);
}
await (await load()).run(args);
