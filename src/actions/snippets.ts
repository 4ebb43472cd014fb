/** First requests with a key: programs, chat interfaces, editors. Pages bundle this file. */
import { shellWordOf } from "../shell.ts";

/** By the title of their tab, and where they belong. */
export function snippets(url: string, model: string, key: string): Record<string, string> {
  // JSON is YAML, Python and JavaScript, too.
  const [base, name, secret] = [url, model, key].map((text) => JSON.stringify(text));
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Say hello." }] });
  return {
    "curl: in a terminal": `curl ${shellWordOf(`${url}/chat/completions`)} \\
  -H ${shellWordOf(`Authorization: Bearer ${key}`)} \\
  -H "Content-Type: application/json" \\
  -d ${shellWordOf(body)}`,
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
  -e ${shellWordOf(`OPENAI_API_BASE_URL=${url}`)} \\
  -e ${shellWordOf(`OPENAI_API_KEY=${key}`)} \\
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
