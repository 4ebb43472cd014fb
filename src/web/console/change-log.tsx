/** Changes in sentences, by day. Many changes of one actor are one line that unfolds. */

import { useState } from "preact/hooks";
import { changeGroups, type Part, sentenceOf, type ToldChange } from "../../actions/sentences.ts";
import { Button } from "../shared/button.tsx";
import { Link, pathTo } from "../shared/router.tsx";
import { clockTime, dateOf, exactTime } from "../shared/times.ts";

type Shown = ToldChange & { at: string };

export function ChangeLog({ rows, caption }: { rows: readonly Shown[]; caption: string }) {
  const days = Map.groupBy(changeGroups(rows), ({ changes: [first] }) => dateOf(Date.parse(first?.at ?? "")));
  return (
    <section aria-label={caption}>
      {[...days].flatMap(([day, groups]) => [
        <h3 key={day}>{day}</h3>,
        ...groups.map(({ title, changes: all }, index) => (
          <Line key={`${day} ${index}`} parts={title} changes={all} />
        )),
      ])}
    </section>
  );
}

/** The time is a button that shows what is behind the sentence. `parts`: null for one change. */
function Line({ parts, changes }: { parts: readonly Part[] | null; changes: readonly Shown[] }) {
  const [isOpen, setOpen] = useState(false);
  const [change] = changes;
  if (change === undefined) return null;
  const ms = Date.parse(change.at);
  return (
    <div class="line">
      <Button aria-expanded={isOpen} title={`${exactTime(ms)}: details`} onClick={() => setOpen(!isOpen)}>
        {clockTime(ms)}
      </Button>
      <p>{(parts ?? sentenceOf(change)).map((part) => linked(part, change.account ?? ""))}</p>
      {isOpen &&
        (parts === null ? (
          <pre class="plain">{JSON.stringify(change, null, 2)}</pre>
        ) : (
          <div>
            {changes.map((each, n) => (
              <Line key={n} parts={null} changes={[each]} />
            ))}
          </div>
        ))}
    </div>
  );
}

function linked(part: Part, account: string) {
  if (typeof part === "string") return part;
  const { of, id } = part;
  const query = (page: string, name: string, value: string) =>
    `${page}?${new URLSearchParams({ [name]: value })}`;
  const paths = {
    actor: query(pathTo("operators"), "by", id),
    account: pathTo("accounts", id),
    key: pathTo("accounts", account, "keys"),
    request: query(pathTo("accounts", account, "receipts"), "request_id", id),
    person: query(pathTo("people"), "account", account),
    link: pathTo("links", id),
  };
  return <Link to={paths[of]}>{part.text}</Link>;
}
