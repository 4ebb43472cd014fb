/**
 * `inkwell serve`: the service in the foreground. The first SIGTERM or SIGINT stops it gracefully.
 * A second signal stops it at once; running requests are then charged by their last checkpoint at
 * the next start. SIGHUP reloads the configuration.
 */
import { Command } from "commander";
import { bannerObject, bannerText } from "../app/startup-banner.ts";
import { loadConfig } from "../config/load.ts";
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
    .action(() => runService(cli));
}

async function runService(cli: Cli): Promise<void> {
  const config = await cli.config();
  const { cwd, env, services, stdout, stderr } = cli.host;
  const starting = new AbortController();
  let stop: (() => void) | undefined;
  let asked: StopSignal | undefined;
  using _stop = onStopSignal(cli.signals, (signal) => {
    if (asked !== undefined) process.exit(signalExitCodes[signal]);
    asked = signal;
    if (stop === undefined) return starting.abort(new Error(`stopped by ${signal} while starting`));
    cli.remark("Stopping: running answers may finish. Send the signal again to stop at once.");
    stop();
  });
  let hangUp: (() => void) | undefined;
  let isHungUp = false;
  using _hangUp = onSignal(cli.signals, "SIGHUP", () => {
    if (hangUp !== undefined) return hangUp();
    isHungUp = true;
    createLogger(config.log.level, stderr).info(
      "SIGHUP arrived during the start; the configuration is reloaded when the service is up",
    );
  });
  try {
    if (!cli.json) stdout.write(`Inkwell ${services.version}\n`);
    // From the same file as at the start, even if another one lies nearer meanwhile.
    const host = { ...cli.host, reread: () => loadConfig({ cwd, env, file: config.file ?? undefined }) };
    const service = await services.startService(config, host, starting.signal);
    const { banner, stopped } = service;
    const showsLink = banner.first !== null && !cli.json && stdout.isTTY === true;
    const code = showsLink ? await service.newSignInCode() : null;
    hangUp = () => service.hangUp();
    stop = () => void service.stop();
    // One line, because its reader does not wait for the end of the document.
    const document = { version: services.version, ...bannerObject(banner) };
    stdout.write(`${cli.json ? JSON.stringify(document) : bannerText(banner, cwd, code)}\n`);
    if (isHungUp) hangUp();
    // A signal that came too late to stop the start stops the service.
    if (asked !== undefined) stop();
    await stopped;
  } catch (error) {
    if (asked === undefined || error !== starting.signal.reason) throw error;
    cli.remark("Stopped before the service was up.");
    cli.exitCode = signalExitCodes[asked];
  }
}
