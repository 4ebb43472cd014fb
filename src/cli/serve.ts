/**
 * `inkwell serve`: the service in the foreground. The first SIGTERM or SIGINT stops it gracefully, a second one at
 * once: what was running is then settled by its last checkpoint, at the next start. SIGHUP is logged and ignored.
 */
import { Command } from "commander";
import { bannerObject, bannerText } from "../app/startup-banner.ts";
import { createLogger } from "../telemetry/logger.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";

/** What shells report for a program that a signal ended: 128 and the number of the signal. */
const signalExitCodes = { SIGINT: 130, SIGTERM: 143 } as const;
type StopSignal = keyof typeof signalExitCodes;

export function serveCommand(cli: Cli): Command {
  return new Command("serve")
    .description("run the service; with --json one line on stdout tells when it is up, and where")
    .addHelpText(
      "after",
      `${examples("inkwell serve", "INKWELL_PORT=8000 inkwell serve", "inkwell serve --config /etc/inkwell/inkwell.yaml")}

Ctrl-C, or SIGTERM, lets running answers finish; once more stops at once. SIGHUP is ignored.`,
    )
    .action(() => serve(cli));
}

async function serve(cli: Cli): Promise<void> {
  const config = cli.config();
  const starting = new AbortController();
  let stop: (() => Promise<void>) | undefined;
  let asked: StopSignal | undefined;
  const onSignal = (signal: StopSignal) => {
    if (asked !== undefined) process.exit(signalExitCodes[signal]);
    asked = signal;
    if (stop === undefined) {
      starting.abort(new Error(`stopped by ${signal} while starting`));
      return;
    }
    cli.remark("Stopping: running answers may finish. Once more to stop at once.");
    // How it went is told by `stopped`.
    stop().catch(() => {});
  };
  const onHangUp = () => {
    createLogger(config.log.level, cli.host.stderr).info(
      "SIGHUP is ignored; the configuration is read at the start only, so restart the service to apply changes",
    );
  };
  process.on("SIGHUP", onHangUp);
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  const { cwd, services, stdout } = cli.host;
  try {
    if (!cli.json) stdout.write(`Inkwell ${services.version}\n`);
    const service = await services.serve(config, cli.host, starting.signal);
    stop = () => service.stop();
    const { banner } = service;
    // In one line: who reads it does not wait for an end that comes when the service stops.
    const document = { version: services.version, ...bannerObject(banner) };
    stdout.write(`${cli.json ? JSON.stringify(document) : bannerText(banner, cwd)}\n`);
    // A signal that came too late to stop the start finds a service that is up.
    if (asked !== undefined) stop().catch(() => {});
    await service.stopped;
  } catch (error) {
    if (asked === undefined || error !== starting.signal.reason) throw error;
    cli.remark("Stopped before the service was up.");
    cli.exitCode = signalExitCodes[asked];
  } finally {
    process.off("SIGHUP", onHangUp);
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  }
}
