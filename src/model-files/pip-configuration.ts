/**
 * Which Python package index this machine uses, as pip itself would find out: so that a machine behind a mirror
 * needs no setting of ours. Reads the environment and the files that it is told of, and nothing else of pip's.
 *
 * Order of precedence: https://pip.pypa.io/en/stable/topics/configuration/
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";

export const publicPackageIndexUrl = "https://pypi.org/simple";

export interface PipSurroundings {
  environment: Readonly<Record<string, string | undefined>>;
  home: string;
  platform: NodeJS.Platform;
}

/** The index's address, without a `/` at its end; the public one where nothing is configured. */
export async function packageIndexUrlOf(surroundings: PipSurroundings): Promise<string> {
  const { environment } = surroundings;
  if (environment.PIP_INDEX_URL) return trimmed(environment.PIP_INDEX_URL);
  for (const path of configurationFiles(surroundings)) {
    // A file that is not there, or not for this user's eyes, configures nothing.
    const url = indexUrlIn(await readFile(path, "utf8").catch(() => ""));
    if (url !== undefined) return trimmed(url);
  }
  return publicPackageIndexUrl;
}

/** The most binding first. */
function configurationFiles({ environment, home, platform }: PipSurroundings): string[] {
  const given = environment.PIP_CONFIG_FILE;
  // Pip's own way to say that no file counts.
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

/** `index-url` of the sections that hold for a download; the command's own section wins over `[global]`. */
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
