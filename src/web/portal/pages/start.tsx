/** A first request for curl, Python and TypeScript. The key is never shown. */

import { apiPath, get } from "../../shared/api.ts";
import { CopyButton } from "../../shared/copy.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { Options } from "../../shared/options.tsx";
import { go, Link, pathTo, usePlace, withParameters } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { useLoaded } from "../../shared/use-loaded.ts";
import type { OwnAccount, UsableModel } from "../types.ts";

const unknownUrl = "URL_OF_THE_API";

export function StartPage({ own }: { own: OwnAccount }) {
  const models = useLoaded("models", (signal) => get<{ data: UsableModel[] }>(apiPath("models"), {}, signal));
  const { query } = usePlace();
  return (
    <>
      <PageHead title="Start" />
      <p class="above">
        Each client of the OpenAI API works. It needs this URL, a model, and a key in the variable{" "}
        <code>OPENAI_API_KEY</code>: the key that you signed in with, or another one from{" "}
        <Link to={pathTo("keys")}>Keys</Link>.
      </p>
      {own.public_url === null && (
        <p class="notice warn">
          This portal does not know the URL of the API. Ask the operator, and put it in place of{" "}
          <code>{unknownUrl}</code>.
        </p>
      )}
      <Shown of={models}>
        {({ data }) => {
          const ids = data.map(({ id }) => id);
          const model = ids.find((id) => id === query.get("model")) ?? ids[0];
          if (model === undefined) {
            return <Empty>Your key may use no model. Ask the operator to change its models.</Empty>;
          }
          return (
            <>
              <div class="filters">
                <label for="model">
                  Model
                  <select
                    id="model"
                    value={model}
                    onChange={({ currentTarget }) => go(withParameters({ model: currentTarget.value }), true)}
                  >
                    <Options of={ids} />
                  </select>
                </label>
              </div>
              {snippets(own.public_url ?? unknownUrl, model).map(([title, code]) => (
                <Card
                  key={title}
                  title={title}
                  actions={
                    <CopyButton
                      text={code}
                      label={`Copy the request with ${title}`}
                      failed="Select the text and copy it with your keyboard."
                    />
                  }
                >
                  {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls needs the keyboard */}
                  <section class="plain" aria-label={`Request with ${title}`} tabIndex={0}>
                    <code>{code}</code>
                  </section>
                </Card>
              ))}
            </>
          );
        }}
      </Shown>
    </>
  );
}

function snippets(url: string, model: string): (readonly [title: string, code: string])[] {
  const base = `${url.replace(/\/+$/, "")}/v1`;
  const quoted = JSON.stringify(model);
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Say hello." }] });
  return [
    [
      "curl",
      [
        `curl '${base}/chat/completions' \\`,
        `  -H "Authorization: Bearer $OPENAI_API_KEY" \\`,
        `  -H "Content-Type: application/json" \\`,
        `  -d '${body.replaceAll("'", "'\\''")}'`,
      ].join("\n"),
    ],
    [
      "Python (pip install openai)",
      [
        "from openai import OpenAI",
        "",
        `client = OpenAI(base_url=${JSON.stringify(base)})`,
        "answer = client.chat.completions.create(",
        `    model=${quoted},`,
        `    messages=[{"role": "user", "content": "Say hello."}],`,
        ")",
        "print(answer.choices[0].message.content)",
      ].join("\n"),
    ],
    [
      "TypeScript (npm install openai)",
      [
        `import OpenAI from "openai";`,
        "",
        `const client = new OpenAI({ baseURL: ${JSON.stringify(base)} });`,
        "const answer = await client.chat.completions.create({",
        `  model: ${quoted},`,
        `  messages: [{ role: "user", content: "Say hello." }],`,
        "});",
        "console.log(answer.choices[0]?.message.content);",
      ].join("\n"),
    ],
  ];
}
