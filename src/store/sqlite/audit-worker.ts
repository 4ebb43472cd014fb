/** The thread of one audit. Started by audit.ts, with an `AuditTask`, and of no use alone. */
import { parentPort, workerData } from "node:worker_threads";
import { auditFile } from "./audit.ts";

parentPort?.postMessage(auditFile(workerData));
