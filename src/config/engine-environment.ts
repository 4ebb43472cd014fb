/**
 * The environment of the engine's process: an allowlist, and the variables that a model's
 * `environment` names.
 *
 * Secrets, and variables that load code into a process (`LD_*`, `DYLD_*`, `NODE_OPTIONS`,
 * `GGML_BACKEND_PATH`, `CUDA_INJECTION64_PATH`, `VK_LAYER_PATH`), reach the process only if the
 * operator names them.
 */
import type { Environment } from "./document.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

/**
 * Home folders hold caches of GPU programs; Node needs one for a user without an entry in
 * /etc/passwd.
 */
const everywhere = ["HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ", "XDG_CACHE_HOME"];

/**
 * Selection of devices, caches and loading. Without ROCm, which the bundled llama.cpp does not
 * support.
 */
const gpu = [
  "CUDA_CACHE_DISABLE",
  "CUDA_CACHE_MAXSIZE",
  "CUDA_CACHE_PATH",
  "CUDA_DEVICE_MAX_CONNECTIONS",
  "CUDA_DEVICE_ORDER",
  "CUDA_MODULE_LOADING",
  "CUDA_PATH",
  "CUDA_VISIBLE_DEVICES",
  "GGML_VK_VISIBLE_DEVICES",
  "MESA_SHADER_CACHE_DIR",
  "MESA_SHADER_CACHE_DISABLE",
  "MESA_VK_DEVICE_SELECT",
  "NVIDIA_TF32_OVERRIDE",
];

/**
 * Windows finds system folders and libraries through these, and the CUDA libraries through
 * `PATH`.
 */
const windows = [
  "APPDATA",
  "LOCALAPPDATA",
  "NUMBER_OF_PROCESSORS",
  "PATH",
  "PROCESSOR_ARCHITECTURE",
  "PROGRAMDATA",
  "PROGRAMFILES",
  "PROGRAMFILES(ARM)",
  "PROGRAMFILES(X86)",
  "SYSTEMDRIVE",
  "SYSTEMROOT",
  "TEMP",
  "TMP",
  "USERPROFILE",
  "WINDIR",
];

const variableName = kind.text(
  "the name of a variable, such as LD_LIBRARY_PATH; names that begin with INKWELL_ or NODE_ are not passed on",
  (value) => /^[A-Za-z_]\w*$/.test(value) && !/^(INKWELL_|NODE_)/i.test(value),
  { standIn: "HOME" },
);

/** Reads the `environment` of a model and returns the whole environment of its process. */
export function readEngineEnvironment(section: Section): Environment {
  const expects = "a list of variables that the model's process receives as well: [LD_LIBRARY_PATH]";
  const named = section.list("environment", variableName, expects).values;
  return engineEnvironment(section.env, named, process.platform);
}

export function engineEnvironment(
  env: Environment,
  named: readonly string[],
  platform: NodeJS.Platform,
): Environment {
  const isWindows = platform === "win32";
  // On Windows the case of variable names does not matter.
  const keyOf = (name: string): string => (isWindows ? name.toUpperCase() : name);
  const allowed = new Set([...everywhere, ...gpu, ...(isWindows ? windows : []), ...named].map(keyOf));
  return Object.fromEntries(Object.entries(env).filter(([name]) => allowed.has(keyOf(name))));
}
