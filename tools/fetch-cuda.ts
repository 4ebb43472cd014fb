/**
 * `npm run gpu`: installs the CUDA binaries of node-llama-cpp for this machine (about 540 MB), in
 * the version of the installed library, after a check against the hashes of cuda-packages.ts.
 *
 * `npm ci` does not install them (`optionalDependencies`), because few machines need them. Run
 * this again after each `npm ci`.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { cudaPackagesOf, cudaVersion, verifyArchive } from "./cuda-packages.ts";

const run = promisify(execFile);
const modules = join(import.meta.dirname, "..", "node_modules");

const platform = { linux: "linux", win32: "win" }[process.platform as string];
if (platform === undefined || process.arch !== "x64") {
  console.error(
    `There are CUDA binaries for Linux and Windows on x64, not for ${process.platform} on ${process.arch}.`,
  );
  process.exit(1);
}

const manifest: unknown = JSON.parse(await readFile(join(modules, "node-llama-cpp", "package.json"), "utf8"));
if (typeof manifest !== "object" || manifest === null || !("version" in manifest)) {
  throw new Error("node-llama-cpp has a version");
}
if (manifest.version !== cudaVersion) {
  console.error(
    `node-llama-cpp ${manifest.version} is installed, but the hashes in tools/cuda-packages.ts are for ${cudaVersion}. Run npm ci, or update the hashes.`,
  );
  process.exit(1);
}
const scratch = await mkdtemp(join(tmpdir(), "inkwell-cuda-"));
try {
  const archives: { name: string; archive: string }[] = [];
  for (const name of cudaPackagesOf(platform)) {
    console.log(`Fetching ${name}@${manifest.version} ...`);
    const { stdout } = await run(
      "npm",
      ["pack", `${name}@${manifest.version}`, "--pack-destination", scratch, "--json"],
      {
        // Windows finds npm.cmd only through a shell. No argument comes from outside.
        shell: process.platform === "win32",
        maxBuffer: 64 * 1024 * 1024,
      },
    );
    const packed: unknown = JSON.parse(stdout);
    const archive = join(scratch, fileNameOf(packed));
    await verifyArchive(name, archive);
    archives.push({ name, archive });
  }
  // Only now, so that an invalid archive does not change the installation.
  for (const { name, archive } of archives) {
    const unpacked = `${archive}.unpacked`;
    await mkdir(unpacked);
    await run("tar", ["-xzf", archive, "-C", unpacked, "--strip-components=1"]);
    const place = join(modules, ...name.split("/"));
    await rm(place, { recursive: true, force: true });
    await moveFolder(unpacked, place);
  }
} finally {
  await rm(scratch, { recursive: true, force: true });
}
console.log("Done. The next `npm start` uses the GPU.");

function fileNameOf(packed: unknown): string {
  const first: unknown = Array.isArray(packed) ? packed[0] : undefined;
  if (
    typeof first === "object" &&
    first !== null &&
    "filename" in first &&
    typeof first.filename === "string"
  ) {
    return first.filename;
  }
  throw new Error("npm pack --json names the file it wrote");
}

async function moveFolder(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EXDEV")) throw error;
    await cp(from, to, { recursive: true });
  }
}
