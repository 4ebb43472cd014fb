/**
 * A mock upstream that answers each path with fixed bytes (upstream-answers.ts). It reads and
 * writes the connection itself, so that it costs much less than the server that is measured.
 */
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { streamOf, upstreamAnswers, wholeOf, wholePath } from "./upstream-answers.ts";

const chatPath = "/v1/chat/completions";
const streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

function chunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
}

/** For each path the pieces of its response; each piece is sent in a turn of the event loop. */
const responses = new Map<string, Buffer[]>();
for (const answer of upstreamAnswers) {
  const events = streamOf(answer).map(chunk);
  const chunks = answer.inPieces ? events : [events.join("")];
  chunks[0] = `${streamHead}${chunks[0]}`;
  chunks.push(`${chunks.pop()}0\r\n\r\n`);
  const whole = wholeOf(answer);
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${whole.length}\r\n\r\n`;
  responses.set(
    `/${answer.id}${chatPath}`,
    chunks.map((each) => Buffer.from(each)),
  );
  responses.set(`/${answer.id}${wholePath}${chatPath}`, [Buffer.from(head + whole)]);
}

function send(socket: Socket, pieces: readonly Buffer[], from: number): void {
  const piece = pieces[from];
  if (piece === undefined || socket.destroyed) return;
  socket.write(piece);
  if (from + 1 < pieces.length) setImmediate(() => send(socket, pieces, from + 1));
}

function serve(socket: Socket): void {
  let head = "";
  let path = "";
  /** Bytes of the request that are still to come; null until its head is whole. */
  let bytesLeft: number | null = null;
  socket.on("error", () => socket.destroy());
  socket.on("data", (bytes) => {
    if (bytesLeft === null) {
      head += bytes.toString("latin1");
      const end = head.indexOf("\r\n\r\n");
      if (end === -1) return;
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
      bytesLeft = end + 4 + length - head.length;
      path = head.split(" ", 2)[1] ?? "";
      head = "";
    } else bytesLeft -= bytes.length;
    if (bytesLeft > 0) return;
    bytesLeft = null;
    const pieces = responses.get(path);
    if (pieces === undefined) socket.end("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    else send(socket, pieces, 0);
  });
}

/** Listens on this machine and returns the origin. */
export async function startMockUpstream(port = 0): Promise<string> {
  const server = createServer({ noDelay: true }, serve).listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("a server has an address");
  return `http://127.0.0.1:${address.port}`;
}
