/** One search over everything, opened by a button, Ctrl-K or "/". No answer replaces a newer one. */

import { useEffect, useId, useState } from "preact/hooks";
import { isSecret } from "../../actions/search.ts";
import { exactCredits } from "../../units.ts";
import { apiPath, get, send } from "../shared/api.ts";
import { Button } from "../shared/button.tsx";
import { Dialog } from "../shared/form-dialog.tsx";
import { go, pathTo } from "../shared/router.tsx";
import { Failure } from "../shared/states.tsx";
import type { Page } from "../shared/types.ts";
import { useLoaded } from "../shared/use-loaded.ts";
import type { Finding, KeyOfSecret } from "./types.ts";

type Sections = readonly (readonly [path: string, title: string, group?: string])[];

/** The page of what was found. */
const places = {
  account: ["Accounts", ({ id }) => pathTo("accounts", id)],
  person: ["People", ({ id }) => `${pathTo("people")}?search=${id}`],
  key: ["Keys", ({ account }) => pathTo("accounts", account ?? "", "keys")],
  payment: ["Payments", ({ account }) => `${pathTo("accounts", account ?? "", "journal")}?kind=payments`],
  request: ["Requests", ({ id }) => pathTo("requests", id)],
} as const satisfies Record<Finding["kind"], readonly [group: string, to: (found: Finding) => string]>;

export function Search({ sections }: { sections: Sections }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const { key, ctrlKey, metaKey, target } = event;
      const isTyped = target instanceof Element && target.matches("input, select, textarea");
      const isCalled = ctrlKey || metaKey ? key === "k" : key === "/" && !isTyped;
      if (!isCalled || document.querySelector("dialog[open]") !== null) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <>
      <Button class="search" title="Ctrl-K or /" onClick={() => setOpen(true)}>
        Search
      </Button>
      {isOpen && <SearchDialog sections={sections} close={() => setOpen(false)} />}
    </>
  );
}

function SearchDialog({ sections, close }: { sections: Sections; close(): void }) {
  const listId = useId();
  const [input, setInput] = useState({ typed: "", place: 0, isEntered: false });
  const [asked, setAsked] = useState("");
  const text = input.typed.trim();
  // The service is asked after a short pause in typing.
  useEffect(() => {
    const pause = setTimeout(() => setAsked(text), 120);
    return () => clearTimeout(pause);
  }, [text]);
  const found = useLoaded(`search ${asked}`, (signal) => find(asked, signal));
  const isCurrent = asked === text && !found.isLoading;
  const pages = sections.filter(([, title]) => title.toLowerCase().startsWith(text.toLowerCase()));
  const choices = [
    ...(found.value ?? []).map(choiceOf),
    ...pages.map(([path, title]) => ({
      group: "Pages",
      title,
      note: "",
      to: path === "" ? pathTo() : pathTo(path),
    })),
  ];
  const place = Math.min(input.place, choices.length - 1);
  const open = (to: string | undefined) => {
    if (to === undefined) return;
    close();
    // The dialog gives the focus back first: the page that opens takes it.
    queueMicrotask(() => go(to));
  };
  // What is entered before its answer is there opens with it.
  useEffect(() => {
    if (input.isEntered && isCurrent) open(choices[place]?.to);
  }, [input, isCurrent]);
  useEffect(
    () => document.getElementById(`${listId}${place}`)?.scrollIntoView({ block: "nearest" }),
    [place],
  );
  return (
    <Dialog title="Search" cancel={close}>
      <input
        role="combobox"
        placeholder="Name, address, or the beginning of an id"
        aria-expanded={choices.length > 0}
        aria-controls={listId}
        aria-activedescendant={place < 0 ? undefined : listId + place}
        autocomplete="off"
        onInput={({ currentTarget }) => setInput({ typed: currentTarget.value, place: 0, isEntered: false })}
        onKeyDown={(event) => {
          const step = { ArrowDown: 1, ArrowUp: choices.length - 1, Enter: 0 }[event.key];
          if (step === undefined || event.isComposing) return;
          event.preventDefault();
          setInput({ ...input, place: (place + step) % choices.length || 0, isEntered: step === 0 });
        }}
      />
      <div role="listbox" id={listId} aria-label="Results" aria-busy={!isCurrent}>
        {[...Map.groupBy(choices, ({ group }) => group)].map(([group, members]) => (
          // biome-ignore lint/a11y/useSemanticElements: a fieldset is no part of a list box
          <div key={group} role="group" aria-label={group}>
            <div class="quiet">{group}</div>
            {members.map((choice) => {
              const n = choices.indexOf(choice);
              return (
                <a
                  key={n}
                  id={listId + n}
                  role="option"
                  aria-selected={n === place}
                  tabIndex={-1}
                  href={choice.to}
                  onClick={(event) => {
                    event.preventDefault();
                    open(choice.to);
                  }}
                >
                  {choice.title} <span class="quiet">{choice.note}</span>
                </a>
              );
            })}
          </div>
        ))}
      </div>
      {found.error && <Failure error={found.error} />}
      <p role="status" class="quiet">
        {isCurrent && found.error === null && choices.length === 0 && "Nothing begins with this."}
      </p>
    </Dialog>
  );
}

/** A secret stands in no address. */
async function find(text: string, signal: AbortSignal): Promise<Finding[]> {
  if (text === "") return [];
  if (!isSecret(text)) return (await get<Page<Finding>>(apiPath("search"), { text }, signal)).data;
  const { key, secret } = await send<KeyOfSecret>("POST", apiPath("keys", "lookup"), { key: text });
  const detail = secret === "old" ? "secret before the last rotation" : key.last_four;
  return [{ ...key, kind: "key", email: null, detail, amount_micro: null, at: key.created_at }];
}

function choiceOf(found: Finding) {
  const { kind, id, account, name, email, detail, amount_micro: micro } = found;
  const [group, to] = places[kind];
  const title = kind === "payment" || kind === "request" ? id : (name ?? id);
  const notes = [name, id, email, account, detail, micro && `${exactCredits(micro)} credits`];
  const others = new Set(notes.filter((note) => note && note !== title));
  return { group, title, note: [...others].join(" · "), to: to(found) };
}
