/**
 * The first steps of a new service. The list goes when all are done, and this browser remembers it.
 * An operator can put it away, too.
 */
import { useEffect, useState } from "preact/hooks";
import { openAccount } from "../../../actions/accounts.ts";
import { Button } from "../../shared/button.tsx";
import { Card } from "../../shared/layout.tsx";
import { type ListAction, useActions } from "../../shared/resource-page.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { Badge } from "../../shared/values.tsx";
import type { Overview } from "../types.ts";
import { opening } from "./open-account.tsx";
import { TryKey } from "./try-key.tsx";

const awayName = "inkwell-first-steps-away";

export function FirstSteps({ of: { first_steps: done, links, models } }: { of: Overview }) {
  const [isAway, setAway] = useState(localStorage.getItem(awayName) !== null);
  const { button, dialog } = useActions();
  const isDone = done !== null && links.portal !== null && Object.values(done).every((each) => each);
  const putAway = () => {
    localStorage.setItem(awayName, "yes");
    setAway(true);
  };
  useEffect(() => {
    if (isDone) putAway();
  }, [isDone]);
  const request: ListAction = {
    title: "Send a first request",
    // Who may open accounts may also send a request with the key of one.
    action: openAccount,
    dialog: (close) => <TryKey secret={null} models={models} close={close} />,
  };
  const steps =
    done &&
    ([
      [done.model, "A model is ready", <Link to={pathTo("health")}>Health</Link>],
      [done.plan, "A plan is offered", <Link to={pathTo("plans")}>Plans</Link>],
      [done.account, "An account is open for somebody", button(opening)],
      [done.key, "It has a key", <Link to={pathTo("accounts")}>Accounts</Link>],
      [done.request, "A first request is answered", button(request)],
      [links.portal !== null, "Holders see it in a portal", <a href="/docs/">Set it up</a>],
    ] as const);
  return (
    <>
      {steps !== null && !isDone && !isAway && (
        <Card title="First steps" actions={<Button onClick={putAway}>Put away</Button>}>
          <ol class="steps">
            {steps.map(([isOver, title, next]) => (
              <li key={title}>
                {title} {isOver ? <Badge text="done" tone="good" /> : next}
              </li>
            ))}
          </ol>
        </Card>
      )}
      {/* A dialog with a secret stays when the list goes. */}
      {dialog}
    </>
  );
}
