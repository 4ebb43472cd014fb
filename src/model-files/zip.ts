/**
 * Streams one file out of a zip archive on disk. Wheels are zip archives, and a model is too
 * large to hold in memory.
 *
 * Never yields more bytes than the caller expects. Does not verify them: the caller has a
 * SHA-256.
 */
import { type FileHandle, open } from "node:fs/promises";
import { Readable } from "node:stream";
import { fromRandomAccessReaderPromise, RandomAccessReader } from "yauzl";
import { messageOf } from "../errors.ts";

/** Read from the disk at once. */
const pieceBytes = 65_536;

/** Some reasons quote a name of up to 64 KiB from the archive. */
const reasonCharactersMax = 300;

/** The archive is damaged, or does not hold the expected file. */
export class ZipDamage extends Error {
  override readonly name = "ZipDamage";
}

/** A file in the archive, with the size that it must have. */
interface WantedMember {
  name: string;
  sizeBytes: number;
}

/**
 * Yields the member's bytes in order. Throws a `ZipDamage`, or the system's error if the archive
 * cannot be read.
 */
export async function* extractMember(
  archivePath: string,
  { name, sizeBytes }: WantedMember,
): AsyncGenerator<Buffer> {
  await using file = await open(archivePath);
  const { size } = await file.stat();
  try {
    const archive = await fromRandomAccessReaderPromise(new FileRanges(file, size), size, {
      autoClose: false,
    });
    for await (const entry of archive.eachEntry()) {
      if (entry.fileName !== name) continue;
      const { uncompressedSize } = entry;
      if (uncompressedSize !== sizeBytes)
        throw new ZipDamage(`${name} has ${uncompressedSize} bytes where ${sizeBytes} are expected`);
      // The stream fails if the member unpacks to more bytes than that.
      yield* await archive.openReadStreamPromise(entry);
      return;
    }
  } catch (error) {
    // Errors of the system have the name of its call.
    if (error instanceof ZipDamage || (error instanceof Error && "syscall" in error)) throw error;
    const reason = messageOf(error).slice(0, reasonCharactersMax);
    throw new ZipDamage(`${name} cannot be unpacked: ${reason}`, { cause: error });
  }
  throw new ZipDamage(`there is no ${name} in it`);
}

/**
 * The library's own reader passes on any range that an archive names, and Node throws for some of
 * them in a callback, which nobody can catch.
 */
class FileRanges extends RandomAccessReader {
  readonly #file: FileHandle;
  readonly #sizeBytes: number;

  constructor(file: FileHandle, sizeBytes: number) {
    super();
    this.#file = file;
    this.#sizeBytes = sizeBytes;
  }

  override _readStreamForRange(start: number, end: number): Readable {
    return Readable.from(this.#bytes(start, end), { objectMode: false });
  }

  async *#bytes(start: number, end: number): AsyncGenerator<Buffer> {
    if (end > this.#sizeBytes) throw new RangeError(`a place beyond its end is named: byte ${end}`);
    let position = start;
    while (position < end) {
      const buffer = Buffer.allocUnsafe(Math.min(pieceBytes, end - position));
      const { bytesRead } = await this.#file.read({ buffer, position });
      // The library reports a file that has become shorter.
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
      position += bytesRead;
    }
  }
}
