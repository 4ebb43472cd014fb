/** The parts of the program that a simulated process uses: the service and its configuration. */

export { serviceTimes } from "../../src/app/service-times.ts";
export { startService } from "../../src/app.ts";
export { loadConfig } from "../../src/config/load.ts";
