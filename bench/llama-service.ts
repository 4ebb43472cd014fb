/** The whole service with the embedded engine, and streamed answers of it. */
import { Agent, request } from "undici";
import { type Service, startService } from "./service.ts";

export interface LlamaServiceOptions {
  /** A model's file. */
  model: string;
  threads?: number;
  parallel: number;
  contextWindow: number;
  /** Default 1. */
  accounts?: number;
  /** The only core that it may use. Default: all. */
  core?: string;
}

export async function startLlamaService(options: LlamaServiceOptions): Promise<Service> {
  const { model, threads, parallel, contextWindow, ...others } = options;
  const engine = {
    engine: "llama",
    source: model,
    context_window: contextWindow,
    parallel,
    ...(threads === undefined ? {} : { threads }),
    price: { prompt: 1, completion: 1 },
  };
  return await startService({ ...others, config: { log: { level: "warn" }, models: { bench: engine } } });
}

const agent = new Agent({ connections: 256, headersTimeout: 600_000, bodyTimeout: 600_000 });

export interface StreamRequest {
  account: number;
  content: string;
  maxTokens: number;
  signal: AbortSignal;
}

/** Requests a streamed answer. */
export function requestStream(service: Service, { account, content, maxTokens, signal }: StreamRequest) {
  return request(`${service.url}/v1/chat/completions`, {
    method: "POST",
    dispatcher: agent,
    signal,
    headers: { authorization: `Bearer ${service.keys[account]}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "bench",
      stream: true,
      temperature: 0,
      max_tokens: maxTokens,
      messages: [{ role: "user", content }],
    }),
  });
}

/** Calls `onToken` for each token of a streamed answer. */
export async function readTokens(
  { statusCode, body }: Awaited<ReturnType<typeof requestStream>>,
  onToken: () => void,
): Promise<void> {
  if (statusCode !== 200) throw new Error(`${statusCode}: ${await body.text()}`);
  for await (const chunk of body.setEncoding("utf8")) {
    const text: string = chunk;
    for (const _ of text.matchAll(/"content":"[^"]/g)) onToken();
  }
}
