/** A client of HTTP/1.1 over a simulated connection: one request, and its answer as it arrives. */
import type { SimulatedSocket } from "./sockets.ts";

export interface Answered {
  status: number;
  headers: ReadonlyMap<string, string>;
  body: string;
  /** False: the connection closed before the end of the answer. */
  isWhole: boolean;
}

export interface Request {
  method: string;
  path: string;
  headers: Readonly<Record<string, string>>;
  body?: string;
  /** Called with each part of the body, and the headers of the answer. */
  onData?(part: string, headers: ReadonlyMap<string, string>): void;
}

/** Resolves with the answer when it has ended, whole or not. Null: no answer came. */
export function send(socket: SimulatedSocket, request: Request): Promise<Answered | null> {
  const { method, path, headers, body = "" } = request;
  const reader = new AnswerReader(request.onData ?? (() => {}));
  return new Promise((resolve) => {
    const finish = () => {
      resolve(reader.answer);
      socket.destroy();
    };
    socket.on("error", () => {});
    socket.once("close", finish);
    socket.once("end", finish);
    socket.on("data", (bytes: Buffer) => {
      reader.push(bytes);
      if (reader.isWhole) finish();
    });
    const lines = Object.entries({
      host: "127.0.0.1",
      ...headers,
      "content-length": String(Buffer.byteLength(body)),
    });
    socket.write(
      `${method} ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n${body}`,
    );
  });
}

/** Reads the head, and a body with a length or in chunks. */
class AnswerReader {
  readonly #onData: (part: string, headers: ReadonlyMap<string, string>) => void;
  #rest = "";
  #status = 0;
  readonly #headers = new Map<string, string>();
  #body = "";
  isWhole = false;

  constructor(onData: (part: string, headers: ReadonlyMap<string, string>) => void) {
    this.#onData = onData;
  }

  get answer(): Answered | null {
    if (this.#status === 0) return null;
    return { status: this.#status, headers: this.#headers, body: this.#body, isWhole: this.isWhole };
  }

  push(bytes: Buffer): void {
    // In latin1, each byte is a character.
    this.#rest += bytes.toString("latin1");
    if (this.#status === 0 && !this.#readHead()) return;
    if (this.#headers.get("transfer-encoding") === "chunked") this.#readChunks();
    else this.#readLength();
  }

  #readHead(): boolean {
    const end = this.#rest.indexOf("\r\n\r\n");
    if (end === -1) return false;
    const [first = "", ...lines] = this.#rest.slice(0, end).split("\r\n");
    this.#rest = this.#rest.slice(end + 4);
    for (const line of lines) {
      const colon = line.indexOf(":");
      this.#headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
    }
    this.#status = Number(first.split(" ")[1]);
    return true;
  }

  #readChunks(): void {
    for (;;) {
      const end = this.#rest.indexOf("\r\n");
      if (end === -1) return;
      const length = Number.parseInt(this.#rest.slice(0, end), 16);
      if (this.#rest.length < end + 2 + length + 2) return;
      this.#take(this.#rest.slice(end + 2, end + 2 + length));
      this.#rest = this.#rest.slice(end + 2 + length + 2);
      if (length === 0) {
        this.isWhole = true;
        return;
      }
    }
  }

  #readLength(): void {
    this.#take(this.#rest);
    this.#rest = "";
    this.isWhole = this.#body.length >= Number(this.#headers.get("content-length") ?? 0);
  }

  #take(part: string): void {
    if (part === "") return;
    this.#body += part;
    this.#onData(part, this.#headers);
  }
}
