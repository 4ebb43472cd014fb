/** A first request with a key, answered in the page, with what it cost. */
import { ask } from "../../shared/conversation.ts";
import { FormDialog } from "../../shared/form-dialog.tsx";
import { counted } from "../../shared/numbers.ts";
import { pathTo } from "../../shared/router.tsx";
import { Amount } from "../../shared/values.tsx";
import type { Overview } from "../types.ts";

/** `secret` null: the operator types it. */
export function TryKey(props: { secret: string | null; models: Overview["models"]; close(): void }) {
  const { secret, models, close } = props;
  const model = (models.find(({ state }) => state === "ready") ?? models[0])?.id ?? "";
  const request = { model, messages: [{ role: "user", content: "Say hello." }], max_tokens: 60 } as const;
  return (
    <FormDialog
      title="Send a first request"
      kind="try"
      submit="Send it"
      intro={
        <p>
          “Say hello.” to {model}. The account of the key pays for it.
          {secret === null && " The first start showed a key, or wrote it into its file."}
        </p>
      }
      fields={secret === null ? [{ name: "key", label: "API key", isRequired: true }] : []}
      send={async ({ key = "" }) => {
        const { signal } = new AbortController();
        const turn = await ask(request, signal, () => {}, secret ?? key.trim());
        const { text, id, costMicro, tokens, problem } = turn;
        if (text === "" || id === null) throw new Error(problem ?? "The answer has no text. Try it again.");
        const result = (
          <>
            <blockquote>{text}</blockquote>
            <p>
              It cost {costMicro === null ? "?" : <Amount micro={costMicro} />} credits for{" "}
              {counted((tokens?.prompt ?? 0) + (tokens?.completion ?? 0), "token")}.{" "}
              <a href={pathTo("requests", id)} target="_blank" rel="noopener">
                Why it cost this
              </a>
            </p>
          </>
        );
        return { result };
      }}
      close={close}
    />
  );
}
