/** A first request with a key: for programs, chat interfaces and editors, as tabs with a copy. */

import { useId, useState } from "preact/hooks";
import { Button } from "./button.tsx";
import { Code } from "./copy.tsx";

const unknownUrl = "URL_OF_THE_API";

/** Null: this page does not know the URL. */
function apiUrlOf(publicUrl: string | null): string {
  return `${(publicUrl ?? unknownUrl).replace(/\/+$/, "")}/v1`;
}

interface SnippetsProps {
  publicUrl: string | null;
  model: string;
  /** A key, or what stands in its place. */
  secret: string;
}

export function Snippets({ publicUrl, model, secret }: SnippetsProps) {
  const [chosen, choose] = useState(0);
  const id = useId();
  const all = Object.entries(snippets(apiUrlOf(publicUrl), model, secret)).map(
    ([name, code]) => [...name.split(": "), code] as const,
  );
  const [title = "", where = "", code = ""] = all[chosen] ?? [];
  return (
    <>
      {publicUrl === null && (
        <p class="notice warn">
          This page does not know the URL of the API. Put it in the place of <code>{unknownUrl}</code>.
        </p>
      )}
      <div
        role="tablist"
        aria-label="Clients"
        class="tabs"
        onKeyDown={({ key, currentTarget }) => {
          const step = { ArrowRight: 1, ArrowLeft: all.length - 1 }[key];
          if (step === undefined) return;
          const next = (chosen + step) % all.length;
          choose(next);
          currentTarget.querySelectorAll("button")[next]?.focus();
        }}
      >
        {all.map(([name], index) => (
          <Button
            key={name}
            role="tab"
            aria-selected={index === chosen}
            aria-controls={id}
            tabIndex={index === chosen ? 0 : -1}
            onClick={() => choose(index)}
          >
            {name}
          </Button>
        ))}
      </div>
      <Code text={code} title={where} copyLabel={`Copy the request with ${title}`} label={title} panel={id} />
    </>
  );
}

/** By the title of their tab, and where they belong. */
function snippets(url: string, model: string, key: string): Record<string, string> {
  // JSON is YAML, Python and JavaScript, too.
  const [base, name, secret] = [url, model, key].map((text) => JSON.stringify(text));
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Say hello." }] });
  return {
    "curl: in a terminal": `curl ${quoted(`${url}/chat/completions`)} \\
  -H ${quoted(`Authorization: Bearer ${key}`)} \\
  -H "Content-Type: application/json" \\
  -d ${quoted(body)}`,
    "Python: pip install openai": `from openai import OpenAI

client = OpenAI(base_url=${base}, api_key=${secret})
answer = client.chat.completions.create(
    model=${name},
    messages=[{"role": "user", "content": "Say hello."}],
)
print(answer.choices[0].message.content)`,
    "Node: npm install openai": `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${base}, apiKey: ${secret} });
const answer = await client.chat.completions.create({
  model: ${name},
  messages: [{ role: "user", content: "Say hello." }],
});
console.log(answer.choices[0]?.message.content);`,
    "LangChain: pip install langchain-openai": `from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    base_url=${base},
    api_key=${secret},
    model=${name},
    stream_usage=True,
)
print(model.invoke("Say hello.").content)`,
    "Open WebUI: in a terminal": `docker run -d -p 3000:8080 -v open-webui:/app/backend/data \\
  -e ${quoted(`OPENAI_API_BASE_URL=${url}`)} \\
  -e ${quoted(`OPENAI_API_KEY=${key}`)} \\
  --name open-webui ghcr.io/open-webui/open-webui:main`,
    "LibreChat: in librechat.yaml": `version: 1.2.1
endpoints:
  custom:
    - name: Inkwell
      apiKey: ${secret}
      baseURL: ${base}
      models:
        default: [${name}]
        fetch: true
      titleConvo: true
      titleModel: current_model`,
    "Continue: in ~/.continue/config.yaml": `name: Inkwell
version: 0.0.1
schema: v1
models:
  - name: ${name}
    provider: openai
    model: ${name}
    apiBase: ${base}
    apiKey: ${secret}
    roles: [chat, edit]`,
  };
}
