/** Changes in sentences, by day. Many changes of one actor are one line that unfolds. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { changeGroups, type Part, sentenceOf, type ToldChange } from "../../actions/sentences.ts";
import { Link, pathTo } from "../shared/router.tsx";
import { clockTime, dateOf, exactTime } from "../shared/times.ts";

type Shown = ToldChange & { at: string };

export function ChangeLog({ changes }: { changes: readonly Shown[] }) {
  const days = Map.groupBy(changeGroups(changes), ({ changes: [first] }) =>
    dateOf(Date.parse(first?.at ?? "")),
  );
  return [...days].map(([day, groups]) => (
    <section key={day} class="log">
      <h3>{day}</h3>
      {groups.map(({ title, changes: all }, index) =>
        title === null ? (
          all.map((change) => <Entry key={index} change={change} />)
        ) : (
          <Line key={index} at={all[0]?.at ?? ""} parts={title} account={null}>
            {all.map((change, n) => (
              <Entry key={n} change={change} />
            ))}
          </Line>
        ),
      )}
    </section>
  ));
}

function Entry({ change }: { change: Shown }) {
  return (
    <Line at={change.at} parts={sentenceOf(change)} account={change.account}>
      <pre class="plain">{JSON.stringify(change, null, 2)}</pre>
    </Line>
  );
}

/** The time is a button that shows what is behind the sentence. */
function Line(props: {
  at: string;
  parts: readonly Part[];
  account: string | null;
  children: ComponentChildren;
}) {
  const { at, parts, account, children } = props;
  const [isOpen, setOpen] = useState(false);
  const ms = Date.parse(at);
  return (
    <div class="line">
      <button
        type="button"
        aria-expanded={isOpen}
        title={`${exactTime(ms)}: details`}
        onClick={() => setOpen(!isOpen)}
      >
        {clockTime(ms)}
      </button>
      <p>
        {parts.map((part, index) =>
          typeof part === "string" ? (
            part
          ) : (
            <Link key={index} to={pathOf(part, account ?? "")}>
              {part.text}
            </Link>
          ),
        )}
      </p>
      {isOpen && <div>{children}</div>}
    </div>
  );
}

function pathOf({ of, id }: Exclude<Part, string>, account: string): string {
  const paths = {
    actor: `${pathTo("operators")}?${new URLSearchParams({ by: id })}`,
    account: pathTo("accounts", id),
    key: pathTo("accounts", account, "keys"),
    request: `${pathTo("accounts", account, "receipts")}?${new URLSearchParams({ request_id: id })}`,
    person: `${pathTo("people")}?${new URLSearchParams({ account })}`,
    link: pathTo("links", id),
  };
  return paths[of];
}
