/**
 * The file `operator-address` of the data folder: where the operator listener of the running
 * service is, for commands on this machine.
 *
 * Guarantees that a command finds an address only if nobody else could have written the file, and
 * if a process with its id is alive, which this user may send signals. The address of a service
 * that was killed stays in the file, and another program may have its port by now.
 */
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { inkwell } from "./invocation.ts";
import { fieldOf } from "./objects.ts";
import { isOnlyOf } from "./secret-file.ts";

/** The sentence for commands that need a running service. `options` name one elsewhere. */
export function noServiceHere(options = "--server"): string {
  return `No service runs here, and this needs one. Start it with "${inkwell("serve")}", or name one with ${options}.`;
}

const addressFileName = "operator-address";

interface OperatorAddress {
  url: string;
  /** The URL of the public API. */
  api: string;
  pid: number;
  /** The database of the service, without secrets: a command may be configured for another one. */
  database: string;
}

/** Returns a function that removes the file, unless another service has written it since. */
export function writeOperatorAddress(folder: string, address: OperatorAddress): () => void {
  const file = path.join(folder, addressFileName);
  const draft = `${file}.${address.pid}`;
  const text = `${JSON.stringify(address)}\n`;
  rmSync(draft, { force: true });
  writeFileSync(draft, text, { flag: "wx", mode: 0o600 });
  renameSync(draft, file);
  return () => {
    if (readOwn(file) === text) rmSync(file, { force: true });
  };
}

/** Returns the address of the running service of this data folder. Null if none runs. */
export function readOperatorAddress(folder: string): OperatorAddress | null {
  const address = parsed(readOwn(path.join(folder, addressFileName)));
  const [url, api, pid] = ["url", "api", "pid"].map((name) => fieldOf(address, name));
  const database = fieldOf(address, "database");
  if (typeof url !== "string" || typeof api !== "string") return null;
  if (typeof pid !== "number" || typeof database !== "string") return null;
  return isOurs(pid) ? { url, api, pid, database } : null;
}

function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? "null");
  } catch {
    return null;
  }
}

/** Returns null if the file cannot be read, or if somebody else may have written it. */
function readOwn(file: string): string | null {
  let handle: number;
  try {
    handle = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    const found = fstatSync(handle);
    const user = process.getuid?.();
    // Root works for every user.
    const isOwn = isOnlyOf(user === 0 ? found.uid : user, found);
    return isOwn && found.size < 4096 ? readFileSync(handle, "utf8") : null;
  } finally {
    closeSync(handle);
  }
}

/** Whether the process is alive, and this user may send it signals. */
function isOurs(pid: number): boolean {
  try {
    return Number.isInteger(pid) && pid > 0 && process.kill(pid, 0);
  } catch {
    return false;
  }
}
