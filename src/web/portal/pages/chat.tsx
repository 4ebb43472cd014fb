/** A small chat to try a model. It shows Markdown and what each turn cost, and stores nothing. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { exactCredits } from "../../../units.ts";
import { Button } from "../../shared/button.tsx";
import { ask, type Turn } from "../../shared/conversation.ts";
import { PageHead } from "../../shared/layout.tsx";
import { Options } from "../../shared/options.tsx";
import { Form, Notes } from "../../shared/plain-form.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import type { OwnAccount, UsableModel } from "../types.ts";
import { useModels } from "../use-own.ts";
import { type Exchange, requestOf, type Settings, SettingsForm } from "./chat-settings.tsx";
import { ExchangeView } from "./exchange.tsx";

export function ChatPage({ own }: { own: OwnAccount }) {
  const models = useModels();
  return (
    <div class="chat">
      <PageHead title="Chat" />
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
    </div>
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
  /** The message that the field replaces, with all after it. */
  const [edited, setEdited] = useState<number | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [running, setRunning] = useState<AbortController | null>(null);
  const stop = useRef<AbortController | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  // Leaving the page stops the answer, so that nobody pays for text that nobody reads.
  useEffect(() => () => stop.current?.abort(), []);
  useEffect(() => field.current?.focus(), []);
  const followEnd = useEnd(exchanges);
  const isRunning = running !== null;

  const send = async (typed: string, before: readonly Exchange[]) => {
    if (stop.current !== null) return;
    const question = typed.trim();
    const request = requestOf(settings, before, question);
    if (question === "") return setProblem("Write a message.");
    if ("problem" in request) return setProblem(request.problem);
    const aborter = new AbortController();
    stop.current = aborter;
    setRunning(aborter);
    setProblem(null);
    if (typed === text) setText("");
    setEdited(null);
    followEnd();
    const show = (turn: Turn | null) => setExchanges([...before, { question, turn }]);
    show(null);
    const frames = oncePerFrame(show);
    const turn = await ask(request, aborter.signal, frames.call);
    frames.cancel();
    // A refused message goes back into its field, and the conversation is as it was.
    if (turn.id === null) {
      setExchanges(exchanges);
      if (typed === text) {
        setText((now) => now || question);
        setEdited(edited);
      }
      setProblem(turn.problem);
    } else show(turn);
    stop.current = null;
    setRunning(null);
  };
  const sendTyped = () => void send(text, exchanges.slice(0, edited ?? exchanges.length));
  const write = (message: string, place: number | null) => {
    setText(message);
    setEdited(place);
    field.current?.focus();
  };
  const costs = exchanges.flatMap(({ turn }) => turn?.costMicro ?? []);
  const isUnknown = exchanges.some(({ turn }) => turn !== null && turn.costMicro === null);
  return (
    <>
      <section aria-label="Conversation" aria-busy={isRunning}>
        {exchanges.length === 0 && (
          <p class="quiet">
            Try a model. Nothing is stored: the conversation is gone when you leave this page. Each message
            sends the whole conversation, and costs credits like a request with your key.
          </p>
        )}
        {exchanges.map((exchange, index) => {
          const isLast = index === exchanges.length - 1;
          return (
            <ExchangeView
              key={index}
              of={exchange}
              isRunning={isRunning && isLast}
              edit={isRunning ? null : () => write(exchange.question, index)}
              retry={
                isRunning || !isLast ? null : () => void send(exchange.question, exchanges.slice(0, index))
              }
            />
          );
        })}
      </section>
      <Form submit={sendTyped}>
        {edited !== null && (
          <p class="tools">
            This replaces your message and all after it.
            <Button onClick={() => write("", null)}>Cancel</Button>
          </p>
        )}
        <Notes id="message" problem={problem} />
        <div class="writer">
          <textarea
            id="message"
            aria-label="Message"
            ref={field}
            rows={2}
            placeholder="Write a message"
            value={text}
            aria-invalid={problem !== null}
            aria-describedby="message-error"
            onInput={({ currentTarget }) => setText(currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
              event.preventDefault();
              sendTyped();
            }}
          />
          <div class="tools">
            <select
              aria-label="Model"
              value={settings.model}
              onChange={({ currentTarget }) => setSettings({ ...settings, model: currentTarget.value })}
            >
              <Options
                of={models.map(({ id, state }) => [id, state === "ready" ? id : `${id} (${state})`])}
              />
            </select>
            {isRunning ? (
              <Button
                class="danger"
                onClick={() => {
                  running.abort();
                  field.current?.focus();
                }}
              >
                Stop
              </Button>
            ) : (
              <button type="submit" class="primary">
                Send
              </button>
            )}
          </div>
        </div>
        <div class="tools">
          <span role="status">
            {exchanges.length > 0 &&
              `Conversation: ${isUnknown ? "at least " : ""}${exactCredits(costs.reduce((sum, micro) => sum + micro, 0))} credits`}
          </span>
          <Button
            disabled={isRunning || exchanges.length === 0}
            onClick={() => {
              setExchanges([]);
              write("", null);
            }}
          >
            New conversation
          </Button>
        </div>
      </Form>
      <details>
        <summary>Settings</summary>
        <SettingsForm
          models={models}
          settings={settings}
          change={(fields) => setSettings({ ...settings, ...fields })}
        />
      </details>
    </>
  );
}

/**
 * Calls `show` with the latest value, at most once for each picture of the screen: hundreds of
 * pieces can arrive in the time of one.
 */
function oncePerFrame<T>(show: (value: T) => void) {
  let frame = 0;
  let latest: T;
  const call = (value: T) => {
    latest = value;
    if (frame !== 0) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      show(latest);
    });
  };
  return { call, cancel: () => cancelAnimationFrame(frame) };
}

/** Keeps the end of the page in sight while it grows, unless its reader has scrolled up. */
function useEnd(grows: unknown): () => void {
  const isAtEnd = useRef(true);
  useEffect(() => {
    const look = () => {
      const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
      isAtEnd.current = scrollHeight - clientHeight - scrollTop < 80;
    };
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    if (isAtEnd.current) scrollTo(0, document.documentElement.scrollHeight);
  }, [grows]);
  return () => {
    isAtEnd.current = true;
  };
}
