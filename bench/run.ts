/** `npm run bench -- NAME [options]`: runs one benchmark. Each prints one table with a ratio to a floor of the same run. */
const benchmarks: Record<string, () => Promise<{ run(args: readonly string[]): Promise<void> }>> = {
  blocking: () => import("./blocking.ts"),
  engine: () => import("./engine.ts"),
  fairness: () => import("./fairness.ts"),
  gateway: () => import("./gateway.ts"),
  isolation: () => import("./isolation.ts"),
  ledger: () => import("./ledger.ts"),
  metering: () => import("./metering.ts"),
  nodes: () => import("./nodes.ts"),
  preparation: () => import("./preparation.ts"),
  refusals: () => import("./refusals.ts"),
  storage: () => import("./storage.ts"),
  stops: () => import("./stops.ts"),
  streams: () => import("./streams.ts"),
};

const [name = "", ...args] = process.argv.slice(2);
const load = benchmarks[name];
if (load === undefined) {
  console.error(`Usage: npm run bench -- ${Object.keys(benchmarks).join(" | ")} [options]`);
  process.exit(2);
}
try {
  await (await load()).run(args);
} catch (error) {
  const isUsage =
    error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
  if (!isUsage) throw error;
  console.error(`${error.message}\nThe options of "${name}" are at the top of bench/${name}.ts.`);
  process.exitCode = 2;
}
