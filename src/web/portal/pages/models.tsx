/** The models that the session may use, with their prices. */
import { PageHead } from "../../shared/layout.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty } from "../../shared/states.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import { useModels } from "../use-own.ts";

const columns = columnsOf(
  "model",
  "id state pricing.prompt pricing.cached_prompt pricing.completion context_window max_output_tokens",
);

export function ModelsPage() {
  const models = useModels();
  return (
    <>
      <PageHead title="Models" />
      <p class="quiet above">
        Prices are credits per million tokens, context and longest answer are tokens.{" "}
        <Link to={pathTo("chat")}>Try one</Link>, or <Link to={pathTo("start")}>use it in a program</Link>.
      </p>
      <ShownTable
        of={models}
        caption="Models and their prices"
        columns={columns}
        empty={<Empty>You may use no model. Ask the operator to change your models.</Empty>}
      />
    </>
  );
}
