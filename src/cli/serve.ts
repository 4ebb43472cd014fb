/**
 * `inkwell serve`: the service in the foreground. The first SIGTERM or SIGINT stops it gracefully.
 * A second signal stops it at once; running requests are then charged by their last checkpoint at
 * the next start. SIGHUP reloads the configuration.
 */
import { Command } from "commander";
import { bannerObject, bannerText } from "../app/startup-banner.ts";
import { type ShownStart, WorkerHere } from "../app/worker-here.ts";
import { Workers } from "../app/workers.ts";
import { writeAddress } from "../app/written-address.ts";
import { type Config, loadConfig } from "../config/load.ts";
import { shareOf } from "../config/workers.ts";
import { inkwell } from "../invocation.ts";
import { createLogger } from "../telemetry/logger.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { onSignal, onStopSignal, type StopSignal, signalExitCodes } from "./signals.ts";

export function serveCommand(cli: Cli): Command {
  return new Command("serve")
    .description("run the service; with --json, one line on stdout reports that it is up, and where")
    .addHelpText(
      "after",
      `${examples(inkwell("serve"), `INKWELL_PORT=8000 ${inkwell("serve")}`, inkwell("serve --config /etc/inkwell/inkwell.yaml"))}

Ctrl-C or SIGTERM lets running answers finish; a second one stops at once. SIGHUP reloads the configuration.`,
    )
    .action(() => serve(cli));
}

/** `using` it lets the process of a worker end. */
async function serve(cli: Cli): Promise<void> {
  using worker = await WorkerHere.join();
  const config = worker?.config ?? (await cli.config());
  if (worker === null && config.workers > 1) await runWorkers(cli, config);
  else await runService(cli, config, worker);
}

async function runWorkers(cli: Cli, config: Config): Promise<void> {
  const logger = createLogger(config.log.level, cli.host.stderr);
  using written = new DisposableStack();
  const workers = new Workers(shareOf(config, config.workers), logger, (shown) => {
    written.defer(writeAddress(config, shown.banner, logger));
    showStart(cli, shown);
  });
  let isAsked = false;
  using _stop = onStopSignal(cli.signals, (signal) => {
    if (!isAsked) cli.remark(stopping);
    isAsked = true;
    workers.stop(signal);
  });
  using _hangUp = onSignal(cli.signals, "SIGHUP", () => workers.hangUp());
  if (!cli.json) cli.host.stdout.write(`Inkwell ${cli.host.services.version}\n`);
  cli.exitCode = await workers.run();
}

const stopping = "Stopping: running answers may finish. Send the signal again to stop at once.";

function showStart(cli: Cli, { banner, signInCode }: ShownStart): void {
  const { cwd, services, stdout } = cli.host;
  // One line, because its reader does not wait for the end of the document.
  const document = { version: services.version, ...bannerObject(banner) };
  stdout.write(`${cli.json ? JSON.stringify(document) : bannerText(banner, cwd, signInCode)}\n`);
}

async function runService(cli: Cli, config: Config, worker: WorkerHere | null): Promise<void> {
  const { cwd, env, services, stdout, stderr } = cli.host;
  const signals = worker?.signals ?? cli.signals;
  const starting = new AbortController();
  let stop: (() => void) | undefined;
  let asked: StopSignal | undefined;
  using _stop = onStopSignal(signals, (signal) => {
    if (asked !== undefined) process.exit(signalExitCodes[signal]);
    asked = signal;
    if (stop === undefined) return starting.abort(new Error(`stopped by ${signal} while starting`));
    if (worker === null) cli.remark(stopping);
    stop();
  });
  let hangUp: (() => void) | undefined;
  let isHungUp = false;
  using _hangUp = onSignal(signals, "SIGHUP", () => {
    if (hangUp !== undefined) return hangUp();
    isHungUp = true;
    createLogger(config.log.level, stderr).info(
      "SIGHUP arrived during the start; the configuration is reloaded when the service is up",
    );
  });
  try {
    if (worker === null && !cli.json) stdout.write(`Inkwell ${services.version}\n`);
    // From the same file as at the start, even if another one lies nearer meanwhile.
    const reread = () => shareOf(loadConfig({ cwd, env, file: config.file ?? undefined }), config.workers);
    const host = { ...cli.host, reread, worker };
    const service = await services.startService(config, host, starting.signal);
    const { banner, stopped } = service;
    const showsLink = banner.first !== null && !cli.json && stdout.isTTY === true;
    const shown = { banner, signInCode: showsLink ? await service.newSignInCode() : null };
    hangUp = () => service.hangUp();
    stop = () => void service.stop();
    if (worker === null) showStart(cli, shown);
    else worker.tell({ kind: "up", shown });
    if (isHungUp) hangUp();
    // A signal that came too late to stop the start stops the service.
    if (asked !== undefined) stop();
    await stopped;
  } catch (error) {
    if (asked === undefined || error !== starting.signal.reason) throw error;
    if (worker === null) cli.remark("Stopped before the service was up.");
    cli.exitCode = signalExitCodes[asked];
  }
}
