/** A message of the chat with its answer, what it cost, and what can be done with it. */

import { exactCredits } from "../../../units.ts";
import { Button } from "../../shared/button.tsx";
import type { Turn } from "../../shared/conversation.ts";
import { CopyButton } from "../../shared/copy.tsx";
import { counted } from "../../shared/numbers.ts";
import { Link, pathTo } from "../../shared/router.tsx";
import { Markdown } from "../markdown.tsx";
import type { Exchange } from "./chat-settings.tsx";

interface ExchangeProps {
  of: Exchange;
  /** Its answer is arriving. */
  isRunning: boolean;
  /** Null while an answer arrives. */
  edit: (() => void) | null;
  /** Null unless it is the last one. */
  retry: (() => void) | null;
}

export function ExchangeView({ of: { question, turn }, isRunning, edit, retry }: ExchangeProps) {
  return (
    <article>
      <h2 class="hidden">You</h2>
      <p class="plain question">{question}</p>
      <div class="tools">
        <CopyButton text={question} label="Copy the question" />
        {edit && <Button onClick={edit}>Edit</Button>}
      </div>
      <h2 class="hidden">Answer</h2>
      <Markdown text={turn?.text ?? ""} />
      {turn?.problem && <p class="notice warn">{turn.problem}</p>}
      <div class="tools">
        {turn?.text && !isRunning && <CopyButton text={turn.text} label="Copy the answer" />}
        {retry && <Button onClick={retry}>Retry</Button>}
        <span>
          <TurnCost turn={turn} isRunning={isRunning} />
        </span>
      </div>
    </article>
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
  const { costMicro, tokens } = turn;
  return (
    <>
      {exactCredits(costMicro)} credits
      {tokens &&
        ` for ${counted(tokens.prompt, "prompt token")} and ${counted(tokens.completion, "answer token")}`}
    </>
  );
}
