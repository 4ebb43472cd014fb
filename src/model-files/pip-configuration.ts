/**
 * Finds the Python package index of this machine in pip's own configuration, so that a machine
 * behind a mirror needs no extra setting. Only `index-url` is read.
 *
 * Order of precedence: https://pip.pypa.io/en/stable/topics/configuration/
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

const publicPackageIndexUrl = "https://pypi.org/simple";

interface PipSurroundings {
  environment: Readonly<Record<string, string | undefined>>;
  home: string;
  platform: NodeJS.Platform;
}

/** Returns the index URL without a trailing `/`. Default: the public index. */
export async function packageIndexUrlOf(surroundings: PipSurroundings): Promise<string> {
  const { environment } = surroundings;
  if (environment.PIP_INDEX_URL) return trimmed(environment.PIP_INDEX_URL);
  for (const path of configurationFiles(surroundings)) {
    // A file that is missing or not readable counts as empty.
    const url = indexUrlIn(await readFile(path, "utf8").catch(() => ""));
    if (url !== undefined) return trimmed(url);
  }
  return publicPackageIndexUrl;
}

/** The file with the highest precedence comes first. */
function configurationFiles({ environment, home, platform }: PipSurroundings): string[] {
  const given = environment.PIP_CONFIG_FILE;
  // With this value pip reads no file.
  if (given === "/dev/null" || given === "nul") return [];
  const name = platform === "win32" ? "pip.ini" : "pip.conf";
  const files = given ? [given] : [];
  if (environment.VIRTUAL_ENV) files.push(join(environment.VIRTUAL_ENV, name));
  if (platform === "win32") {
    files.push(
      join(environment.APPDATA ?? join(home, "AppData", "Roaming"), "pip", name),
      join(home, "pip", name),
    );
    files.push(join(environment.ProgramData ?? "C:\\ProgramData", "pip", name));
    return files;
  }
  if (platform === "darwin") files.push(join(home, "Library", "Application Support", "pip", name));
  files.push(
    join(environment.XDG_CONFIG_HOME || join(home, ".config"), "pip", name),
    join(home, ".pip", name),
  );
  if (platform === "darwin") files.push(join("/Library", "Application Support", "pip", name));
  files.push("/etc/pip.conf", join("/etc", "xdg", "pip", name));
  return files;
}

/**
 * Returns the `index-url` for downloads: section `[download]` takes precedence over `[global]`.
 */
function indexUrlIn(text: string): string | undefined {
  const found = new Map<string, string>();
  let section = "";
  for (const line of text.split(/\r?\n/)) {
    section = /^\s*\[([^\]]+)\]/.exec(line)?.[1]?.trim() ?? section;
    const value = /^\s*index[-_]url\s*[=:]\s*(\S+)/.exec(line)?.[1];
    if (value !== undefined) found.set(section, value);
  }
  return found.get("download") ?? found.get("global");
}

function trimmed(url: string): string {
  return url.replace(/\/+$/, "");
}
