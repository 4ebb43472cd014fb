/**
 * Takes one file out of a zip archive on disk, as a stream: wheels are zip archives, and a model is too large to
 * hold in memory. Knows the stored and the deflated form, which is all that wheels use; no zip64, no encryption.
 * Guarantees that no more bytes come out than the caller expects. Does not check them: the caller has a SHA-256.
 *
 * Format: APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
 */
import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { createInflateRaw } from "node:zlib";

const endSignature = 0x06054b50;
const endBytes = 22;
const commentBytesMax = 65_535;
const entrySignature = 0x02014b50;
const entryBytes = 46;
const localSignature = 0x04034b50;
const localBytes = 30;
const stored = 0;
const deflated = 8;
const zip64Mark = 0xffffffff;

/** The archive is not what it should be. */
export class ZipDamage extends Error {
  override readonly name = "ZipDamage";
}

/** A file in the archive, and the size that it must have. */
export interface WantedMember {
  name: string;
  sizeBytes: number;
}

interface Member {
  method: number;
  packedBytes: number;
  sizeBytes: number;
  localOffset: number;
}

/** Hands the member's bytes to `consume`, in order. Throws a `ZipDamage`, or what `consume` throws. */
export async function extractMember(
  archivePath: string,
  { name, sizeBytes }: WantedMember,
  consume: (pieces: AsyncIterable<Buffer>) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const archive = await open(archivePath, "r");
  let start: number;
  let member: Member;
  try {
    member = await findMember(archive, name);
    if (member.sizeBytes !== sizeBytes)
      throw new ZipDamage(`${name} has ${member.sizeBytes} bytes where ${sizeBytes} are expected`);
    const local = await readAt(archive, member.localOffset, localBytes);
    if (local.readUInt32LE(0) !== localSignature)
      throw new ZipDamage(`${name} is not where the directory says`);
    start = member.localOffset + localBytes + local.readUInt16LE(26) + local.readUInt16LE(28);
  } finally {
    await archive.close();
  }
  if (member.method !== stored && member.method !== deflated) {
    throw new ZipDamage(`${name} is packed by method ${member.method}, which wheels do not use`);
  }
  // A stream's `end` is inclusive, so nothing at all must be asked for in another way.
  if (member.packedBytes === 0) return consume(noPieces());
  const packed = createReadStream(archivePath, { start, end: start + member.packedBytes - 1 });
  // The directory's size may be a lie, so the bytes are counted as they come.
  const bounded = (pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> =>
    upTo({ name, sizeBytes }, pieces);
  try {
    if (member.method === stored) await pipeline(packed, bounded, consume, { signal });
    else await pipeline(packed, createInflateRaw(), bounded, consume, { signal });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    throw code.startsWith("Z_") ? new ZipDamage(`${name} cannot be unpacked (${code})`) : error;
  }
}

async function* upTo(
  { name, sizeBytes }: WantedMember,
  pieces: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > sizeBytes)
      throw new ZipDamage(`${name} unpacks to more than the ${sizeBytes} bytes expected`);
    yield piece;
  }
}

async function* noPieces(): AsyncGenerator<Buffer> {}

async function findMember(archive: FileHandle, name: string): Promise<Member> {
  const { size } = await archive.stat();
  const tailBytes = Math.min(size, endBytes + commentBytesMax);
  const tail = await readAt(archive, size - tailBytes, tailBytes);
  let end = tail.length - endBytes;
  while (end >= 0 && tail.readUInt32LE(end) !== endSignature) end--;
  if (end < 0) throw new ZipDamage("it is not a zip archive, or is cut short");
  const directoryBytes = tail.readUInt32LE(end + 12);
  const directoryOffset = tail.readUInt32LE(end + 16);
  if (directoryOffset === zip64Mark || directoryOffset + directoryBytes > size) {
    throw new ZipDamage("its directory is not within it");
  }
  const directory = await readAt(archive, directoryOffset, directoryBytes);
  for (let at = 0; at + entryBytes <= directory.length; ) {
    if (directory.readUInt32LE(at) !== entrySignature) throw new ZipDamage("its directory is damaged");
    const nameBytes = directory.readUInt16LE(at + 28);
    if (directory.toString("utf8", at + entryBytes, at + entryBytes + nameBytes) === name) {
      return {
        method: directory.readUInt16LE(at + 10),
        packedBytes: directory.readUInt32LE(at + 20),
        sizeBytes: directory.readUInt32LE(at + 24),
        localOffset: directory.readUInt32LE(at + 42),
      };
    }
    at += entryBytes + nameBytes + directory.readUInt16LE(at + 30) + directory.readUInt16LE(at + 32);
  }
  throw new ZipDamage(`there is no ${name} in it`);
}

async function readAt(file: FileHandle, position: number, bytes: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, position);
  if (bytesRead < bytes) throw new ZipDamage("it is cut short");
  return buffer;
}
