/** The clients of `npm run clients`, in pinned versions, and how each is installed. */
import { existsSync } from "node:fs";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { installPython, outputOf } from "../servers/run.ts";

export interface Client {
  name: string;
  version: string;
  /** Files of this folder, the program first. */
  files: readonly string[];
  /** Installs into a folder that has the files. Throws with the reason if that fails here. */
  install(folder: string): Promise<void>;
  /** Compiles the program. */
  build?(folder: string): Promise<unknown>;
  /** Program and arguments. Jobs come on standard input. */
  command(folder: string): string[];
  /** Names of the things to try. Default: all. */
  only?: readonly string[];
  /** Things that the client cannot do, each with the reason. */
  known?: Readonly<Record<string, string>>;
}

function python(name: string, file: string, packages: readonly string[]): Client {
  return {
    name,
    version: packages[0]?.split("==").at(-1) ?? "",
    files: [`${file}.py`, "harness.py"],
    install: (folder) => installPython(path.join(folder, "venv"), packages),
    command: (folder) => [path.join(folder, "venv/bin/python"), path.join(folder, `${file}.py`)],
  };
}

function node(name: string, file: string, packages: readonly string[]): Client {
  return {
    name,
    version: packages[0]?.split("@").at(-1) ?? "",
    files: [`${file}.mjs`, "harness.mjs"],
    install: async (folder) => {
      await writeFile(path.join(folder, "package.json"), "{}");
      await outputOf("npm", ["install", "--prefix", folder, "--no-audit", "--no-fund", ...packages]);
    },
    command: (folder) => [process.execPath, path.join(folder, `${file}.mjs`)],
  };
}

function rust(name: string, version: string, file: string): Client {
  return {
    name,
    version,
    files: [`${file}.rs`],
    async install(folder) {
      await writeFile(
        path.join(folder, "Cargo.toml"),
        `[package]
name = "tried"
version = "0.1.0"
edition = "2024"
[[bin]]
name = "tried"
path = "${file}.rs"
[dependencies]
${name} = { version = "=${version}", features = ["chat-completion", "model"] }
futures = "0.3"
serde_json = "1"
tokio = { version = "1", features = ["full"] }
`,
      );
    },
    build: (folder) => outputOf("cargo", ["build", "-q", "--manifest-path", path.join(folder, "Cargo.toml")]),
    command: (folder) => [path.join(folder, "target/debug/tried")],
  };
}

/** Each major version from 2 on is a module of its own. */
function go(name: string, module: string, version: string): Client {
  return {
    name,
    version,
    files: ["openai_go.go"],
    async install(folder) {
      await writeFile(path.join(folder, "go.mod"), "module tried\n\ngo 1.23\n");
      await outputOf("go", ["get", "-C", folder, `${module}@v${version}`]);
    },
    async build(folder) {
      const text = await readFile(path.join(folder, "openai_go.go"), "utf8");
      await writeFile(path.join(folder, "main.go"), text.replaceAll("MODULE", module));
      await outputOf("go", ["build", "-C", folder, "-o", "program", "main.go"]);
    },
    command: (folder) => [path.join(folder, "program")],
  };
}

function java(name: string, group: string, artifact: string, version: string, file: string): Client {
  const libraries = (folder: string) => `${path.join(folder, "lib")}/*`;
  return {
    name,
    version,
    files: [`${file}.java`, "Harness.java"],
    async install(folder) {
      const pom = path.join(folder, "pom.xml");
      const dependency = `<groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version>`;
      await writeFile(
        pom,
        `<project><modelVersion>4.0.0</modelVersion><groupId>tried</groupId><artifactId>tried</artifactId><version>1</version>
<dependencies><dependency>${dependency}</dependency></dependencies></project>`,
      );
      await outputOf("mvn", ["-B", "-q", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
    },
    build: (folder) => {
      const sources = [`${file}.java`, "Harness.java"].map((name) => path.join(folder, name));
      return outputOf("javac", ["-cp", libraries(folder), "-d", folder, ...sources]);
    },
    command: (folder) => ["java", "-cp", `${libraries(folder)}:${folder}`, file],
  };
}

const noList = { models: "it has no list of models" };

export const clients: readonly Client[] = [
  node("openai-node", "openai-node", ["openai@7.59.0"]),
  python("openai-python", "openai_python", ["openai==3.57.0"]),
  go("openai-go-1", "github.com/openai/openai-go", "1.12.0"),
  go("openai-go-3.37", "github.com/openai/openai-go/v3", "3.37.0"),
  go("openai-go", "github.com/openai/openai-go/v3", "3.99.0"),
  java("openai-java", "com.openai", "openai-java", "4.101.0", "OpenAiJava"),
  {
    ...java("langchain4j", "dev.langchain4j", "langchain4j-open-ai", "1.19.0", "Langchain4j"),
    known: { retry: "it repeats whole answers and no streams, and does not read retry-after" },
  },
  rust("async-openai", "0.43.0", "async_openai"),
  { ...python("langchain-python", "langchain_python", ["langchain-openai==1.7.4"]), known: noList },
  {
    ...node("langchain-node", "langchain-node", ["@langchain/openai@1.6.0", "@langchain/core@1.4.0"]),
    known: noList,
  },
  {
    ...node("ai-sdk", "ai-sdk", ["@ai-sdk/openai-compatible@3.0.92", "ai@7.0.173"]),
    known: noList,
  },
  python("litellm", "litellm_python", ["litellm==1.110.2"]),
  {
    ...python("llm", "llm_python", ["llm==0.36"]),
    known: {
      ...noList,
      error: "it prints status and message, not the code",
      "full context": "it prints the message with the words, and has no error of its own for it",
    },
  },
  {
    ...python("autogen", "autogen_python", ["autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"]),
    only: ["stream"],
  },
  { ...python("smolagents", "smolagents_python", ["smolagents[openai]==1.26.0"]), only: ["stream"] },
];

/** Installs a client once, and copies its program. Returns its folder. */
export async function prepare(client: Client, cache: string): Promise<string> {
  const folder = path.join(cache, `${client.name}-${client.version}`);
  await mkdir(folder, { recursive: true });
  for (const file of client.files) {
    const source = path.join(import.meta.dirname, file);
    await copyFile(source, path.join(folder, path.basename(file)));
  }
  // An installation that was interrupted has no mark, and begins again.
  const mark = path.join(folder, "installed");
  if (!existsSync(mark)) {
    await client.install(folder);
    await writeFile(mark, client.version);
  }
  await client.build?.(folder);
  return folder;
}
