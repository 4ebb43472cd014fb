/** What a simulated process offers: the service, and the reader of its configuration. */

export { serviceTimes } from "../../src/app/service-times.ts";
export { startService } from "../../src/app.ts";
export { loadConfig } from "../../src/config/load.ts";
