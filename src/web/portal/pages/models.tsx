/** The models that the session may use, with their prices. */
import { apiPath, get } from "../../shared/api.ts";
import { PageHead } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty } from "../../shared/states.tsx";
import { type Column, ShownTable } from "../../shared/table.tsx";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import type { AccountState, UsableModel } from "../types.ts";
import { PlanLimits } from "./key-card.tsx";

const columns: readonly Column<UsableModel>[] = [
  { title: "Model", cell: ({ id }) => id },
  { title: "State", cell: ({ state }) => <Badge text={state} /> },
  price("Prompt", "prompt"),
  price("Prompt, cached", "cached_prompt"),
  price("Answer", "completion"),
  { title: "Context", isNumber: true, cell: ({ context_window: tokens }) => wholeNumber(tokens) },
  { title: "Longest answer", isNumber: true, cell: ({ max_output_tokens: tokens }) => wholeNumber(tokens) },
];

function price(title: string, of: keyof UsableModel["pricing"]): Column<UsableModel> {
  const cell = ({ pricing }: UsableModel) => (pricing[of] === 0 ? "free" : wholeNumber(pricing[of]));
  return { title, isNumber: true, cell };
}

export function ModelsPage({ own }: { own: AccountState }) {
  const models = useLoaded("models", (signal) => get<{ data: UsableModel[] }>(apiPath("models"), {}, signal));
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
      <div class="above" />
      <PlanLimits of={own} />
    </>
  );
}
