/** A first request for programs and other clients. The key is never shown here. */
import { PageHead } from "../../shared/layout.tsx";
import { FilterInput } from "../../shared/resource-page.tsx";
import { Link, pathTo, usePlace } from "../../shared/router.tsx";
import { Snippets } from "../../shared/snippets.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import type { OwnAccount } from "../types.ts";
import { useModels } from "../use-own.ts";

export function StartPage({ own }: { own: OwnAccount }) {
  const models = useModels();
  const { query } = usePlace();
  return (
    <>
      <PageHead title="Start" />
      <p class="above">
        Each client of the OpenAI API works. It needs this URL, a model, and a key in the place of{" "}
        <code>YOUR_KEY</code>. <Link to={pathTo("keys")}>Keys</Link> makes one, with all of this filled in.
      </p>
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
                <FilterInput
                  of={{ name: "model", label: "Model", options: ids.map((id) => [id, id]) }}
                  value={model}
                />
              </div>
              <Snippets publicUrl={own.public_url} model={model} secret="YOUR_KEY" />
            </>
          );
        }}
      </Shown>
    </>
  );
}
