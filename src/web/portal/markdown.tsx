/**
 * Markdown of an answer as elements. HTML in it is shown as text, and nothing is loaded: an image
 * becomes a link, and a link leads to the web or to a mail address.
 *
 * While an answer grows, its finished blocks are kept as they are, and only the last block is
 * parsed and laid out again.
 */
import { Lexer, type Token, type Tokens } from "marked";
import type { ComponentChildren, VNode } from "preact";
import { useRef } from "preact/hooks";
import { Code } from "../shared/copy.tsx";
import { Table } from "../shared/table.tsx";

interface Finished {
  /** The part of the text that has these blocks. */
  text: string;
  /** The same objects again, which Preact leaves alone. */
  blocks: VNode[];
}

const nothing: Finished = { text: "", blocks: [] };

export function Markdown({ text }: { text: string }) {
  const kept = useRef(nothing);
  const lines = text.replaceAll(/\r\n?/g, "\n");
  const before = lines.startsWith(kept.current.text) ? kept.current : nothing;
  const tokens = tokensOf(lines.slice(before.text.length));
  // More text may belong to the last block.
  const last = Math.max(
    0,
    tokens.findLastIndex(({ type }) => type !== "space"),
  );
  const blockOf = (token: Token, index: number) => <Block key={before.blocks.length + index} of={token} />;
  const blocks = tokens.map(blockOf);
  const finished = tokens.slice(0, last).map(({ raw }) => raw);
  kept.current = {
    text: before.text + finished.join(""),
    blocks: [...before.blocks, ...blocks.slice(0, last)],
  };
  return <div class="markdown">{[...before.blocks, ...blocks]}</div>;
}

/**
 * Quotes and lists in each other, or a row of stars, for each of which the parser calls itself, to
 * a blank line.
 */
const tooDeep = /^(?:(?:[ \t]*(?:>|(?:[-*+]|\d+[.)])[ \t])){32}|.*[*_]{1000}).*(?:\n.+)*/m;

function tokensOf(text: string): Token[] {
  const deep = tooDeep.exec(text);
  if (deep === null) return new Lexer().lex(text);
  const [raw] = deep;
  const after = text.slice(deep.index + raw.length);
  return [
    ...new Lexer().lex(text.slice(0, deep.index)),
    { type: "code", raw, text: raw },
    ...tokensOf(after),
  ];
}

function Block({ of: token }: { of: Token }) {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      // Under the heading of the answer, whatever levels the model uses.
      return <h3 class={token.depth < 3 ? "large" : ""}>{inline(token.tokens)}</h3>;
    case "paragraph":
      return <p>{inline(token.tokens)}</p>;
    case "blockquote":
      return <blockquote>{blocks(token.tokens)}</blockquote>;
    case "hr":
      return <hr />;
    case "code":
      return (
        <Code
          text={token.text}
          title={token.lang ?? ""}
          copyLabel="Copy the code"
          label={`Code ${token.lang ?? ""}`}
        />
      );
    case "list": {
      const items = token.items.map((item: Tokens.ListItem, index: number) => (
        <li key={index}>{blocks(item.tokens)}</li>
      ));
      return token.ordered ? <ol start={Number(token.start)}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return <AnswerTable header={token.header} rows={token.rows} />;
    case "html":
      return <p class="plain">{token.raw}</p>;
    default:
      return <>{inline([token])}</>;
  }
}

function blocks(tokens: readonly Token[] = []): ComponentChildren {
  return tokens.map((token, index) => <Block key={index} of={token} />);
}

function inline(tokens: readonly Token[] = []): ComponentChildren {
  return tokens.map(inlineOf);
}

function inlineOf(token: Token, index: number): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong key={index}>{inline(token.tokens)}</strong>;
    case "em":
      return <em key={index}>{inline(token.tokens)}</em>;
    case "del":
      return <del key={index}>{inline(token.tokens)}</del>;
    case "codespan":
      return <code key={index}>{token.text}</code>;
    case "br":
      return <br key={index} />;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "image":
    case "link":
      return linkOf(token.href, token.type === "image" ? token.text || "image" : inline(token.tokens), index);
    case "text":
      return token.tokens === undefined ? withCharacters(token.text) : inline(token.tokens);
    case "escape":
      return token.text;
    default:
      return token.raw;
  }
}

/** An address of another kind, such as a script, stays text. It opens beside the conversation. */
function linkOf(address: string, shown: ComponentChildren, key: number): ComponentChildren {
  if (!/^(?:https?|mailto):/i.test(address)) return <span key={key}>{shown}</span>;
  return (
    <a key={key} href={address} target="_blank" rel="noreferrer nofollow">
      {shown}
    </a>
  );
}

const named = new Map(Object.entries({ amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0" }));

/** Returns text with the characters that it names: `<` for `&lt;`. */
function withCharacters(text: string): string {
  return text.replaceAll(/&(?:#(\d{1,6})|(\w+));/g, (all, code: string | undefined, name = "") =>
    code === undefined ? (named.get(name) ?? all) : String.fromCodePoint(Number(code)),
  );
}

function AnswerTable({ header, rows }: Pick<Tokens.Table, "header" | "rows">) {
  const columns = header.map(({ text, tokens, align }, index) => ({
    title: text,
    box: inline(tokens),
    isNumber: align === "right",
    cell: (row: Tokens.TableCell[]) => inline(row[index]?.tokens),
  }));
  return <Table caption="Table" rows={rows} columns={columns} />;
}
