/** Settings of the chat, and the request that they make with a conversation. */
import { exactCredits } from "../../../units.ts";
import type { ChatRequest, Message, Turn } from "../../shared/conversation.ts";
import { wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import type { UsableModel } from "../types.ts";

export interface Exchange {
  question: string;
  turn: Turn | null;
}

export interface Settings {
  model: string;
  system: string;
  temperature: string;
  maxTokens: string;
}

const limits = [
  { name: "temperature", id: "temperature", label: "Temperature", inputMode: "decimal" },
  { name: "maxTokens", id: "max-tokens", label: "Longest answer (tokens)", inputMode: "numeric" },
] as const;

export function SettingsForm(props: {
  models: readonly UsableModel[];
  settings: Settings;
  change(fields: Partial<Settings>): void;
}) {
  const { models, settings, change } = props;
  const chosen = models.find(({ id }) => id === settings.model);
  return (
    <>
      {chosen && (
        <p class="quiet above">
          {wholeNumber(chosen.pricing.prompt)} credits per million prompt tokens,{" "}
          {wholeNumber(chosen.pricing.completion)} per million answer tokens: 100 tokens of an answer cost{" "}
          {exactCredits(chosen.pricing.completion * 100)}. Context {wholeNumber(chosen.context_window)}{" "}
          tokens.
        </p>
      )}
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
    </>
  );
}

/** Returns what is sent, or what is wrong with the settings. */
export function requestOf(
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
