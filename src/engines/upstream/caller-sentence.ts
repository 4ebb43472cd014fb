/**
 * Cleans the sentence with which an upstream rejects a request, so that the caller may read it.
 *
 * Pure. Guarantees: one line of at most `charactersMax` characters, without control characters,
 * invisible characters and changes of the direction of text. It contains no key, no URL, no host,
 * no path of a host, and no name of the server or its model. JSON escapes are decoded before each
 * check.
 */
import { escapesMax, withoutEscapes } from "./failure.ts";

/** With the words of the refusal around it, a message stays below 300 characters. */
const charactersMax = 260;
/** Longer text is cut before it is cleaned. */
const saidMax = 4096;

/** Returns null if nothing readable is left. */
export type SentenceCleaner = (said: string | null) => string | null;

interface UpstreamNames {
  urls: readonly string[];
  key: string | null;
  /** Name of the model at the upstream. */
  model: string;
}

type Replacement = readonly [pattern: RegExp, mark: string];

/** Data that no caller may see, whatever the server. Each pattern takes linear time. */
const anywhere: readonly Replacement[] = [
  [/\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s"'<>)\]]+/gi, "[url]"],
  [/(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}/g, "[address]"],
  [/\b(?:sk|pk|ink|hf|gsk|xai|org|proj|req|acct)[-_][\w*-]{6,}/gi, "[key]"],
  [/(\bBearer )\S+/gi, "$1[key]"],
  // Paths: C:\a, \\host\a, /a/b, a/b/c, ../a, and names of source and model files.
  [/(?<!\w)(?:[a-z]:[\\/]|\\\\)[^\s"']+/gi, "[path]"],
  [/(?<![\w./\])-])(?:~|\.{1,2})?(?:\/[\w.@+~-]+)+\/?/g, "[path]"],
  [/(?<![\w./-])[\w.-]+(?:\/[\w.-]+){2,}/g, "[path]"],
  [
    /(?<![\w./-])[\w./-]*\w\.(?:py|gguf|safetensors|bin|jinja|json|ya?ml|so|cpp|cu|go|rs|log)\b(?::\d+)?/gi,
    "[path]",
  ],
  [/\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b/g, "[server]"],
  [/\[[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*\](?::\d{1,5})?/gi, "[server]"],
  [
    /(?<![\w:])(?:(?:[0-9a-f]{1,4}:){1,7}(?::[0-9a-f]{1,4}){1,7}|(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|::[0-9a-f]{1,4})(?![\w:])/gi,
    "[server]",
  ],
  [
    /(?<![\w.-])(?:[\w-]{1,63}\.){1,8}(?:com|net|org|io|ai|dev|app|cloud|internal|local|lan|corp|home|intranet|svc|example|test)\b(?::\d{1,5})?/gi,
    "[server]",
  ],
  [/\blocalhost\b(?::\d{1,5})?/gi, "[server]"],
  [
    /\b(?:vllm|sglang|ollama|llama\.cpp|llama-server|litellm|text-generation-inference|openai|azure|anthropic|gemini|mistral|groq|openrouter|deepseek)\b/gi,
    "[server]",
  ],
];

/** Characters that are not seen, or change the direction of text. Removed without a trace. */
const invisible = /[\p{Cf}\p{DI}\u2800]/gu;
/** White space, line breaks and characters without a glyph. */
const blank = /[\s\p{Cc}\p{Cn}\p{Co}\p{Cs}]+/gu;
/** Names of exceptions, with which some servers begin. */
const exceptions = /^(?:[\w.]{0,80}(?:Error|Exception)(?!\w)[\s:.-]*)+/;
/** Start of lines of the server's code. */
const trace = /\bTraceback \(most recent|\bFile "/;

export function sentenceCleaner(names: UpstreamNames): SentenceCleaner {
  const { key } = names;
  const ofKey = key === null || key === "" ? [] : [[literal(key), "[key]"] as const];
  const replacements = [...ofKey, ...anywhere, ...namesOf(names)];
  return (said) => {
    let text = (said ?? "").slice(0, saidMax).trim().replace(exceptions, "");
    for (let depth = 0; depth <= escapesMax; depth += 1) {
      for (const [pattern, mark] of replacements) text = text.replace(pattern, mark);
      const next = withoutEscapes(text).replace(invisible, "");
      if (next === text) break;
      text = next;
    }
    const [line = ""] = text.toWellFormed().replace(blank, " ").trim().split(trace);
    const isReadable = /\p{L}/u.test(line.replace(/\[(?:key|url|path|server|model|address)\]/g, ""));
    // The cut may leave half a character.
    return isReadable
      ? line
          .slice(0, charactersMax)
          .replace(/[\ud800-\udbff]$/, "")
          .trim()
      : null;
  };
}

/** The names of the model and the servers, each before its parts. */
function namesOf({ urls, model }: UpstreamNames): Replacement[] {
  const hosts = urls.map((url) => new URL(url));
  const servers = hosts.flatMap(({ host, hostname }) => [host, hostname, ...labelsOf(hostname)]);
  const models = [model, ...model.split(/[/:]/).filter(({ length }) => length >= nameLengthMin)];
  return [
    ...models.map((name) => [nameIn(name), "[model]"] as const),
    ...servers.map((name) => [nameIn(name), "[server]"] as const),
  ];
}

/** A shorter part of a name is a word like others. */
const nameLengthMin = 4;

/** Returns the parts of a host name that name a machine or a company. */
function labelsOf(hostname: string): string[] {
  const labels = hostname.split(".");
  const telling = [labels[0] ?? "", labels.at(-2) ?? ""];
  return telling.filter((label) => label.length >= nameLengthMin && /[a-z]/i.test(label));
}

function literal(text: string): RegExp {
  return new RegExp(escaped(text), "gi");
}

/** A name that could be an ordinary word is replaced only if it stands alone. */
function nameIn(text: string): RegExp {
  const isTelling = text.length >= 6 && /[^a-z]/i.test(text);
  return isTelling ? literal(text) : new RegExp(`(?<![\\w-])${escaped(text)}(?![\\w-])`, "gi");
}

function escaped(text: string): string {
  return text.replace(/[^\w\s]/g, "\\$&");
}
