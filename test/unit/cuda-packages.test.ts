/** The pinned CUDA packages match the installed version, and others are refused. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { cudaPackagesOf, cudaVersion, verifyArchive } from "../../tools/cuda-packages.ts";

const root = join(import.meta.dirname, "../..");

test("has the hashes for the pinned version of node-llama-cpp", async () => {
  const { dependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  assert.equal(dependencies["node-llama-cpp"], cudaVersion);
});

test("lists two packages each for Linux and Windows, which npm ci does not install", async () => {
  const { optionalDependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const { packages } = JSON.parse(await readFile(join(root, "package-lock.json"), "utf8"));
  for (const platform of ["linux", "win"]) {
    const names = cudaPackagesOf(platform);
    assert.equal(names.length, 2);
    for (const name of names) {
      // A package for a platform on which Inkwell does not run. npm skips it on all others.
      assert.equal(optionalDependencies[name], `npm:@node-llama-cpp/linux-riscv64@${cudaVersion}`);
      const { name: installed, cpu, optional } = packages[`node_modules/${name}`];
      assert.deepEqual([installed, cpu, optional], ["@node-llama-cpp/linux-riscv64", ["riscv64"], true]);
    }
  }
  assert.deepEqual(cudaPackagesOf("darwin"), []);
});

test("refuses an archive with another hash and a package without a pinned hash", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-cuda-"));
  t.after(() => rm(folder, { recursive: true }));
  const archive = join(folder, "package.tgz");
  await writeFile(archive, "not the package");
  for (const name of cudaPackagesOf("linux")) {
    await assert.rejects(
      verifyArchive(name, archive),
      /has sha512-\S+ where sha512-\S+ is expected; nothing was installed/,
    );
  }
  await assert.rejects(verifyArchive("@node-llama-cpp/other", archive), /is not pinned/);
  // As npm computes it: echo -n "not the package" | openssl dgst -sha512 -binary | base64
  await verifyArchive(
    "@node-llama-cpp/other",
    archive,
    "sha512-8m5clX6Yj+wu8tvA9nWBk0UC8Nvo22cht+xSryH5w0tvGsRPFCTDyek0lT+z3COuYpH925gQzDWWkAOj8b/AVQ==",
  );
});
