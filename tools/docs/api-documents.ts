/**
 * The OpenAPI documents of the operator API and of the portal, as a service gives them that has
 * nothing but an empty ledger and a model on a server that does not exist.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { PassThrough } from "node:stream";
import { stringify } from "yaml";
import { startService } from "../../src/app.ts";
import { loadConfig } from "../../src/config/load.ts";

export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  description?: string;
  enum?: readonly unknown[];
  anyOf?: readonly Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: readonly string[];
}

interface Content {
  description?: string;
  content?: Record<string, { schema: Schema }>;
}

export interface Operation {
  summary: string;
  description?: string;
  tags: readonly string[];
  parameters?: readonly {
    name?: string;
    in?: string;
    required?: boolean;
    description?: string;
    schema?: Schema;
  }[];
  requestBody?: Content;
  responses: Record<string, Content>;
}

/** The parts of an OpenAPI document that pages show. */
export interface ApiDocument {
  info: { title: string; description: string };
  tags: readonly { name: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

const token = randomBytes(32).toString("base64url");

const configuration = {
  log: { level: "error" },
  listen: { port: 0 },
  operator: { port: 0, token },
  portal: { port: 0 },
  models: {
    model: {
      engine: "upstream",
      url: "http://127.0.0.1:9/v1",
      model: "model",
      context_window: 4096,
      price: { prompt: 1, completion: 1 },
    },
  },
};

export async function readApiDocuments(): Promise<{ operator: ApiDocument; portal: ApiDocument }> {
  const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-docs-"));
  try {
    writeFileSync(path.join(cwd, "inkwell.yaml"), stringify(configuration));
    const config = loadConfig({ cwd, env: {} });
    // The banner goes nowhere.
    const streams = { stdin: process.stdin, stdout: new PassThrough().resume(), stderr: process.stderr };
    const host = { ...streams, reread: () => config };
    const service = await startService(config, host, new AbortController().signal);
    try {
      const { operatorUrl, portalUrl, first } = service.banner;
      const keyFile = first?.keyFile;
      assert.ok(portalUrl !== null && typeof keyFile === "string", "the first start opens a portal");
      const operator = await read(`${operatorUrl}/admin/openapi.json`, { authorization: `Bearer ${token}` });
      const page = { "x-inkwell-request": randomBytes(32).toString("base64url") };
      const session = await fetch(`${portalUrl}/api/session`, {
        method: "POST",
        headers: { ...page, "content-type": "application/json" },
        body: JSON.stringify({ key: readFileSync(keyFile, "utf8").trim() }),
      });
      assert.equal(session.status, 200, await session.text());
      const cookie = session.headers.get("set-cookie")?.split(";")[0] ?? "";
      return { operator, portal: await read(`${portalUrl}/api/openapi.json`, { ...page, cookie }) };
    } finally {
      await service.stop();
    }
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

async function read(url: string, headers: Record<string, string>): Promise<ApiDocument> {
  const response = await fetch(url, { headers });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return JSON.parse(text);
}
