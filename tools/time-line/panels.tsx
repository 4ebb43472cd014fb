/** What stands below the picture: the selected event, the balance at the cursor, and the facts. */
import type { ComponentChildren } from "preact";
import { exactCredits, grouped } from "../../src/units.ts";
import type { Run } from "./answer.ts";
import {
  clockText,
  creditsMax,
  dayQuarters,
  type Event,
  moved,
  type NamedEvent,
  planNames,
  planTimes,
  resized,
  timeText,
  within,
} from "./history.ts";
import type { Commit, Played } from "./play.ts";
import { grantsAt, heldOfClosed } from "./strips.ts";
import { creditsText, factsOf, sentenceOf } from "./words.ts";
import { planTexts } from "./world.ts";

interface SelectedProps {
  event: NamedEvent | undefined;
  played: Played;
  payments: number;
  change(id: string, event: Event): void;
  remove(id: string): void;
}

export function Selected({ event, played, payments, change, remove }: SelectedProps) {
  if (event === undefined) {
    return (
      <section class="card">
        <h2>No event is selected</h2>
        <p class="quiet">
          Drag an event, or focus one and press an arrow key. With Shift, the arrows change the length of a
          request or of a promotion. Delete removes an event, and + adds one at the cursor.
        </p>
      </section>
    );
  }
  const { id, at, title } = event;
  const length = event.kind === "request" || event.kind === "promotion" ? event.length : null;
  const commits = played.commits.filter((commit) => commit.event === id);
  const died = [...played.runs].filter(
    ([request, { end, endedAt }]) =>
      end === "died" && (request === id || (event.kind === "crash" && endedAt === at)),
  );
  const answers = commits.filter(({ operation }) => operation.kind !== "extend");
  return (
    <section class="card" aria-label="Selected event">
      <header>
        <h2>{title}</h2>
        <button type="button" class="danger" onClick={() => remove(id)}>
          Remove
        </button>
      </header>
      <div class="fields">
        <Steps
          name="Time"
          text={timeText(at)}
          onStep={(quarters) => change(id, moved(event, at + quarters))}
        />
        {length !== null && (
          <Steps
            name="Length"
            text={`${clockText(length)} h`}
            onStep={(quarters) => change(id, resized(event, length + quarters))}
          />
        )}
        <Values event={event} payments={payments} onChange={(changed) => change(id, changed)} />
      </div>
      {event.kind === "plan" && <p class="quiet">{planTexts[event.plan]}.</p>}
      {(event.kind === "crash" || died.length > 0) && <Crashed died={died} />}
      {answers.map((commit, index) => (
        <Answered key={index} commit={commit} title={index === 0 ? title : "Then it"} />
      ))}
    </section>
  );
}

function Crashed({ died }: { died: readonly (readonly [string, Run])[] }) {
  if (died.length === 0) return <p>The process dies while no request runs.</p>;
  return died.map(([id, { endedAt, madeTokens, expiredAt }]) => (
    <p key={id}>
      {id.replace("request-", "Request ")} dies on {timeText(endedAt ?? 0)}, after {grouped(madeTokens)}{" "}
      tokens. Its hold stays open
      {expiredAt === null ? "." : ` until ${timeText(expiredAt)}.`}
    </p>
  ));
}

function Answered({ commit, title }: { commit: Commit; title: string }) {
  const { asked, answer, isRefused } = sentenceOf(commit);
  return (
    <p>
      {title} {asked}: <span class={isRefused ? "refused" : ""}>{answer}</span>
    </p>
  );
}

function Steps({ name, text, onStep }: { name: string; text: string; onStep(quarters: number): void }) {
  return (
    <fieldset class="steps">
      <legend>{name}</legend>
      <button type="button" aria-label={`${name}: a quarter of an hour less`} onClick={() => onStep(-1)}>
        −
      </button>
      <output>{text}</output>
      <button type="button" aria-label={`${name}: a quarter of an hour more`} onClick={() => onStep(1)}>
        +
      </button>
    </fieldset>
  );
}

interface ValuesProps {
  event: NamedEvent;
  payments: number;
  onChange(event: Event): void;
}

/** The values of an event apart from its time. */
function Values({ event, payments, onChange }: ValuesProps) {
  switch (event.kind) {
    case "request":
    case "crash":
      return null;
    case "plan":
      return (
        <>
          <Choice
            name="Plan"
            options={planNames}
            value={event.plan}
            onChange={(plan) => onChange({ ...event, plan })}
          />
          <Choice
            name="When"
            options={planTimes}
            value={event.when}
            onChange={(when) => onChange({ ...event, when })}
          />
        </>
      );
    case "payment":
      return <Credits event={event} onChange={onChange} />;
    case "refund":
      return (
        <>
          <Credits event={event} onChange={onChange} />
          <Choice
            name="Payment"
            options={Array.from({ length: Math.max(payments, event.payment) }, (_, index) => `${index + 1}`)}
            value={`${event.payment}`}
            onChange={(payment) => onChange({ ...event, payment: Number(payment) })}
          />
        </>
      );
    case "promotion":
      return (
        <>
          <Credits event={event} onChange={onChange} />
          <Choice
            name="End"
            options={["with an end", "endless"]}
            value={event.length === null ? "endless" : "with an end"}
            onChange={(end) => onChange({ ...event, length: end === "endless" ? null : dayQuarters })}
          />
        </>
      );
  }
}

interface CreditsProps {
  event: Extract<Event, { credits: number }>;
  onChange(event: Event): void;
}

function Credits({ event, onChange }: CreditsProps) {
  return (
    <label>
      Credits
      <input
        type="number"
        min={1}
        max={creditsMax}
        value={event.credits}
        onChange={({ currentTarget }) =>
          onChange({
            ...event,
            credits: within(Math.round(currentTarget.valueAsNumber || 1), 1, creditsMax),
          })
        }
      />
    </label>
  );
}

interface ChoiceProps<Word extends string> {
  name: string;
  options: readonly Word[];
  value: Word;
  onChange(value: Word): void;
}

function Choice<Word extends string>({ name, options, value, onChange }: ChoiceProps<Word>) {
  return (
    <label>
      {name}
      <select
        value={value}
        onChange={({ currentTarget }) => {
          const chosen = options.find((option) => option === currentTarget.value);
          if (chosen !== undefined) onChange(chosen);
        }}
      >
        {options.map((option) => (
          <option key={option} value={option}>
            {option.replace("_", " ")}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Balance({ played, cursor }: { played: Played; cursor: number }) {
  const sample = played.samples[cursor];
  if (sample === undefined) return null;
  const { base, overage, additionalMicro, heldMicro, plan, nextPlan } = sample.view;
  const leftMicro = base.remainingMicro + overage.remainingMicro + additionalMicro;
  const closedMicro = heldOfClosed(sample);
  return (
    <section class="card balance" aria-label="Balance at the cursor">
      <h2>Balance on {timeText(cursor)}</h2>
      <div class="figures">
        <Figure name="Left">{exactCredits(leftMicro)}</Figure>
        <Figure name="Held of it">{exactCredits(heldMicro)}</Figure>
        <Figure name="Plan">{nextPlan === null ? plan : `${plan}, then ${nextPlan}`}</Figure>
      </div>
      <table>
        <thead>
          <tr>
            <th scope="col">Grant</th>
            <th scope="col" class="number">
              Amount
            </th>
            <th scope="col" class="number">
              Spent
            </th>
            <th scope="col" class="number">
              Held
            </th>
            <th scope="col" class="number">
              Free
            </th>
          </tr>
        </thead>
        <tbody>
          {grantsAt(played, sample).map((grant) => {
            const { name, kind, seq, from, until, amountMicro, spentMicro, heldMicro: held } = grant;
            const freeMicro = Math.max(0, amountMicro - spentMicro - held);
            return (
              <tr key={name} class={kind}>
                <th scope="row">
                  <i class="dot" /> {name}{" "}
                  <span class="quiet">{seq === null ? "no fact yet" : `№ ${seq}`}</span>
                  <span class="life quiet">
                    {timeText(from)}
                    {until === null ? ", no end" : ` to ${timeText(until)}`}
                  </span>
                </th>
                {[amountMicro, spentMicro, held, freeMicro].map((micro, index) => (
                  <td key={index} class="number">
                    {exactCredits(micro)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
      {closedMicro > 0 && (
        <p class="quiet">
          Running requests still hold {creditsText(closedMicro)} of windows that have closed. They pay with
          these first, and the rest lapses.
        </p>
      )}
    </section>
  );
}

function Figure({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <p class="figure">
      <span class="name">{name}</span>
      <strong>{children}</strong>
    </p>
  );
}

interface FactsProps {
  played: Played;
  events: readonly NamedEvent[];
  selected: string | null;
  select(id: string): void;
}

/**
 * Operations with their outcomes and facts. Extensions without facts that got what they asked for
 * are only shown for the selected request.
 */
export function Facts({ played, events, selected, select }: FactsProps) {
  const isShown = (commit: Commit) =>
    commit.operation.kind !== "extend" ||
    commit.event === selected ||
    commit.journal.length + commit.charges.length > 0 ||
    sentenceOf(commit).isRefused;
  return (
    <section class="card" aria-label="Operations and facts">
      <h2>Operations and facts</h2>
      <p class="quiet">
        Holds and extensions are no facts. Select a request to see its extensions. A window is written when an
        operation first needs it.
      </p>
      <ol class="log">
        {played.commits.filter(isShown).map((commit, index) => (
          <Entry
            key={index}
            commit={commit}
            played={played}
            event={events.find(({ id }) => id === commit.event)}
            isSelected={selected !== null && commit.event === selected}
            select={select}
          />
        ))}
      </ol>
    </section>
  );
}

interface EntryProps {
  commit: Commit;
  played: Played;
  event: NamedEvent | undefined;
  isSelected: boolean;
  select(id: string): void;
}

function Entry({ commit, played, event, isSelected, select }: EntryProps) {
  const { asked, answer, isRefused } = sentenceOf(commit);
  return (
    <li class={commit.operation.kind} data-selected={isSelected} data-event={commit.event ?? ""}>
      <time>{timeText(commit.at)}</time>
      <div>
        <p>
          {event !== undefined && (
            <button type="button" class={`link ${event.kind}`} onClick={() => select(event.id)}>
              {event.title}
            </button>
          )}{" "}
          {asked}: <span class={isRefused ? "refused" : "answer"}>{answer}</span>
        </p>
        {factsOf(commit, played.grants).map(({ seq, text, event: cause }) => (
          <p key={seq} class={`fact ${cause === null && commit.event !== null ? "by-time" : ""}`}>
            <b>№ {seq}</b> {text}
          </p>
        ))}
      </div>
    </li>
  );
}
