/**
 * `npm run bench -- NAME [options]`: runs one benchmark. Each prints one table. Speeds have a
 * ratio to a floor of the same run.
 */
interface Benchmark {
  run(args: readonly string[]): Promise<void>;
}

const names =
  "blocking console engine events fairness first-sign-ins gateway isolation ledger metering mixed nodes pages portal preparation refusals release steady storage stops streams sums".split(
    " ",
  );

const [name = "", ...args] = process.argv.slice(2);
if (!names.includes(name)) {
  console.error(`Usage: npm run bench -- ${names.join(" | ")} [options]`);
  process.exit(2);
}
try {
  const benchmark: Benchmark = await import(`./${name}.ts`);
  await benchmark.run(args);
} catch (error) {
  const isUsage =
    error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
  if (!isUsage) throw error;
  console.error(`${error.message}\nThe options of "${name}" are at the top of bench/${name}.ts.`);
  process.exitCode = 2;
}
