/** A small chat to try a model. It shows plain text, what each turn cost, and stores nothing. */
import { useEffect, useRef, useState } from "preact/hooks";
import { exactCredits } from "../../../units.ts";
import { apiPath, get } from "../../shared/api.ts";
import { PageHead } from "../../shared/layout.tsx";
import { counted, wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import { Link, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { useLoaded } from "../../shared/use-loaded.ts";
import { ask, type ChatRequest, type Message, type Turn } from "../conversation.ts";
import type { OwnAccount, UsableModel } from "../types.ts";

interface Exchange {
  question: string;
  turn: Turn | null;
}

interface Settings {
  model: string;
  system: string;
  temperature: string;
  maxTokens: string;
}

export function ChatPage({ own }: { own: OwnAccount }) {
  const models = useLoaded("models", (signal) => get<{ data: UsableModel[] }>(apiPath("models"), {}, signal));
  return (
    <>
      <PageHead title="Chat" />
      <p class="quiet above">
        To try a model. Nothing is stored: the conversation is gone when you leave this page. Each turn sends
        the whole conversation, and costs credits like a request with your key.
      </p>
      {own.state !== "active" && <p class="notice bad">This account is {own.state}: requests are refused.</p>}
      <Shown of={models}>
        {({ data }) =>
          data[0] === undefined ? (
            <Empty>Your key may use no model. Ask the operator to change its models.</Empty>
          ) : (
            <Conversation models={data} first={data[0]} />
          )
        }
      </Shown>
    </>
  );
}

function Conversation({ models, first }: { models: readonly UsableModel[]; first: UsableModel }) {
  const [settings, setSettings] = useState<Settings>({
    model: first.id,
    system: "",
    temperature: "",
    maxTokens: "",
  });
  const [exchanges, setExchanges] = useState<readonly Exchange[]>([]);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [running, setRunning] = useState<AbortController | null>(null);
  const stop = useRef<AbortController | null>(null);
  // Leaving the page stops the answer, so that nobody pays for text that nobody reads.
  useEffect(() => () => stop.current?.abort(), []);
  const isRunning = running !== null;

  const send = async () => {
    const question = text.trim();
    const request = requestOf(settings, exchanges, question);
    if (question === "") return setProblem("Write a message.");
    if ("problem" in request) return setProblem(request.problem);
    if (stop.current !== null) return;
    const aborter = new AbortController();
    stop.current = aborter;
    setRunning(aborter);
    setProblem(null);
    setText("");
    const show = (turn: Turn | null) => setExchanges([...exchanges, { question, turn }]);
    show(null);
    const turn = await ask(request, aborter.signal, show);
    // A refused message goes back into its field.
    if (turn.id === null) {
      setExchanges(exchanges);
      setText((typed) => typed || question);
      setProblem(turn.problem);
    }
    stop.current = null;
    setRunning(null);
  };
  const costs = exchanges.flatMap(({ turn }) => turn?.costMicro ?? []);
  const isUnknown = exchanges.some(({ turn }) => turn !== null && turn.costMicro === null);
  return (
    <div class="chat">
      <SettingsForm
        models={models}
        settings={settings}
        change={(fields) => setSettings({ ...settings, ...fields })}
      />
      <section aria-label="Conversation" aria-busy={isRunning}>
        {exchanges.map(({ question, turn }, index) => (
          <div key={index}>
            <div class="preview">
              <strong>You</strong>
              <p class="plain">{question}</p>
            </div>
            <div class="card">
              <strong>Answer</strong>
              <p class="plain">{turn?.text ?? ""}</p>
              {turn?.problem && <p class="notice warn">{turn.problem}</p>}
              <p class="quiet">
                <TurnCost turn={turn} isRunning={isRunning && index === exchanges.length - 1} />
              </p>
            </div>
          </div>
        ))}
      </section>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <label class="field" for="message">
          <span>Message</span>
          <textarea
            id="message"
            rows={3}
            value={text}
            aria-invalid={problem !== null}
            aria-describedby="message-error"
            onInput={({ currentTarget }) => setText(currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
              event.preventDefault();
              void send();
            }}
          />
        </label>
        <p id="message-error" class="error" role="alert">
          {problem}
        </p>
        <div class="filters">
          {isRunning ? (
            <button type="button" class="danger" onClick={() => running.abort()}>
              Stop
            </button>
          ) : (
            <button type="submit" class="primary">
              Send
            </button>
          )}
          <button
            type="button"
            disabled={isRunning || exchanges.length === 0}
            onClick={() => setExchanges([])}
          >
            New conversation
          </button>
          {exchanges.length > 0 && (
            <span role="status">
              Conversation: {isUnknown && "at least "}
              {exactCredits(costs.reduce((sum, micro) => sum + micro, 0))} credits
            </span>
          )}
        </div>
      </form>
    </div>
  );
}

function TurnCost({ turn, isRunning }: { turn: Turn | null; isRunning: boolean }) {
  if (isRunning && (turn === null || turn.costMicro === null)) return <>Answering …</>;
  if (turn === null || turn.costMicro === null) {
    return (
      <>
        The cost is not known yet. <Link to={pathTo("requests")}>Requests</Link> will show it.
      </>
    );
  }
  const { tokens } = turn;
  return (
    <>
      This turn cost {exactCredits(turn.costMicro)} credits
      {tokens &&
        ` (${counted(tokens.prompt, "prompt token")}, ${counted(tokens.completion, "answer token")})`}
      .
    </>
  );
}

const limits = [
  { name: "temperature", id: "temperature", label: "Temperature", inputMode: "decimal" },
  { name: "maxTokens", id: "max-tokens", label: "Longest answer (tokens)", inputMode: "numeric" },
] as const;

function SettingsForm(props: {
  models: readonly UsableModel[];
  settings: Settings;
  change(fields: Partial<Settings>): void;
}) {
  const { models, settings, change } = props;
  const chosen = models.find(({ id }) => id === settings.model);
  return (
    <details class="card" open>
      <summary>Model and settings</summary>
      <label class="field" for="model">
        <span>Model</span>
        <select
          id="model"
          value={settings.model}
          onChange={({ currentTarget }) => change({ model: currentTarget.value })}
        >
          {models.map(({ id, state }) => (
            <option key={id} value={id}>
              {id}
              {state === "ready" ? "" : ` (${state})`}
            </option>
          ))}
        </select>
        {chosen && (
          <span class="quiet">
            {wholeNumber(chosen.pricing.prompt)} credits per million prompt tokens,{" "}
            {wholeNumber(chosen.pricing.completion)} per million answer tokens: 100 tokens of an answer cost{" "}
            {exactCredits(chosen.pricing.completion * 100)}. Context {wholeNumber(chosen.context_window)}{" "}
            tokens.
          </span>
        )}
      </label>
      <label class="field" for="system">
        <span>System prompt</span>
        <textarea
          id="system"
          rows={2}
          value={settings.system}
          onInput={({ currentTarget }) => change({ system: currentTarget.value })}
        />
      </label>
      <div class="filters">
        {limits.map(({ name, id, label, inputMode }) => (
          <label key={id} for={id}>
            {label}
            <input
              id={id}
              inputMode={inputMode}
              size={6}
              placeholder="default"
              value={settings[name]}
              type="text"
              onInput={({ currentTarget }) => change({ [name]: currentTarget.value })}
            />
          </label>
        ))}
      </div>
    </details>
  );
}

function requestOf(
  { model, system, temperature, maxTokens }: Settings,
  exchanges: readonly Exchange[],
  question: string,
): ChatRequest | { problem: string } {
  const degrees = temperature.trim() === "" ? null : Number(temperature.replace(",", "."));
  if (degrees !== null && !(degrees >= 0 && degrees <= 2)) {
    return { problem: "Temperature must be a number from 0 to 2, such as 0.7." };
  }
  const tokens = wholeNumberIn(maxTokens);
  if (maxTokens.trim() !== "" && (tokens === null || tokens < 1)) {
    return { problem: "Longest answer must be a whole number of tokens, such as 200." };
  }
  const messages: Message[] = system.trim() === "" ? [] : [{ role: "system", content: system }];
  for (const { question: content, turn } of exchanges) {
    messages.push({ role: "user", content });
    if (turn?.text) messages.push({ role: "assistant", content: turn.text });
  }
  return {
    model,
    messages: [...messages, { role: "user", content: question }],
    ...(degrees === null ? {} : { temperature: degrees }),
    ...(tokens === null ? {} : { max_tokens: tokens }),
  };
}
