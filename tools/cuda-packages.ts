/**
 * Hashes of the CUDA packages of node-llama-cpp, as the npm registry publishes them. Change them
 * together with the version of node-llama-cpp: `npm view @node-llama-cpp/linux-x64-cuda@VERSION
 * dist.integrity`.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

export const cudaVersion = "3.21.1";

const integrities: Record<string, string> = {
  "@node-llama-cpp/linux-x64-cuda":
    "sha512-idsE55VoD/FbvLhnBC9krUJaUoC0XnebseAAnCpm/brKf61HEbu+idgbb5eN6mxkjLSrHtILprJ0nDcUJjVrFg==",
  "@node-llama-cpp/linux-x64-cuda-ext":
    "sha512-1PuURowccBcks3CCoMe1mTHh5vD0V5bFHMUEgtbI/OSDjpP+Pdbn+lf42CGUrepTzR8kCH1HovQ7d8q6/vuIKA==",
  "@node-llama-cpp/win-x64-cuda":
    "sha512-PLz70neFEMkQTlmJqG1ujUtCSgHasLPMxQ9rLkqQVmZYAXqkRj+45TIHCjdn3XqUeaoun0vrO9rRaxZ8NVq9jg==",
  "@node-llama-cpp/win-x64-cuda-ext":
    "sha512-L2MxLVEYPDDe4O8EDWPmX6brldc9+Vt9hNoT/anj3pSnmrjkQcmaoKhHs6oP5qhEhb5Uog0rj6lgzNGtJO3p9Q==",
};

/** Returns the packages of a platform: `linux` or `win`, as node-llama-cpp names them. */
export function cudaPackagesOf(platform: string): string[] {
  return Object.keys(integrities).filter((name) => name.startsWith(`@node-llama-cpp/${platform}-`));
}

/** Throws if the archive is not the pinned tarball of the package, byte for byte. */
export async function verifyArchive(
  name: string,
  archivePath: string,
  expected: string | undefined = integrities[name],
): Promise<void> {
  if (expected === undefined) throw new Error(`${name} is not pinned in tools/cuda-packages.ts`);
  const hash = createHash("sha512");
  for await (const chunk of createReadStream(archivePath)) hash.update(chunk);
  const found = `sha512-${hash.digest("base64")}`;
  if (found === expected) return;
  throw new Error(
    `The archive of ${name}@${cudaVersion} has ${found} where ${expected} is expected; nothing was installed.`,
  );
}
