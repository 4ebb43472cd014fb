/** Writes an OpenAPI document as Markdown: a page for each tag, one of schemas, and their list. */
import type { ApiDocument, Operation, Schema } from "./api-documents.ts";

/** Text of pages by their names: `README.md`, `accounts.md`, `schemas.md`. */
export function referenceOf(document: ApiDocument): Map<string, string> {
  const { info, tags, paths, components } = document;
  const operations = Object.entries(paths).flatMap(([route, byMethod]) =>
    Object.entries(byMethod).map(([method, operation]) => ({
      call: `${method.toUpperCase()} ${route}`,
      operation,
    })),
  );
  const everywhere = operations
    .map(({ operation }) => refusalsOf(operation))
    .reduce((common, each) => common.filter((one) => each.includes(one)));
  const pages = new Map<string, string>();
  const list: string[] = [];
  for (const { name } of tags) {
    const own = operations.filter(({ operation }) => operation.tags.includes(name));
    pages.set(
      `${name}.md`,
      [
        `# ${info.title}: ${name}`,
        ...own.map(({ call, operation }) => textOf(call, operation, everywhere)),
      ].join("\n\n"),
    );
    list.push(
      `## [${name}](${name}.md)`,
      [
        "| request | |\n|---|---|",
        ...own.map(({ call, operation }) => row(code(call), operation.summary)),
      ].join("\n"),
    );
  }
  const schemas = Object.entries(components.schemas).map(
    ([name, schema]) => `## ${name}\n\n${fieldsTable(schema)}`,
  );
  pages.set("schemas.md", [`# ${info.title}: schemas`, ...schemas].join("\n\n"));
  const refusals = `Every request can be refused with these codes:\n\n${refusalsTable(everywhere)}`;
  const more = "[Schemas](schemas.md) are the objects that several answers have.";
  pages.set("README.md", [`# ${info.title}`, info.description, more, refusals, ...list].join("\n\n"));
  return pages;
}

function textOf(call: string, operation: Operation, everywhere: readonly string[]): string {
  const { summary, description, parameters = [], requestBody, responses } = operation;
  const given = parameters.flatMap(({ name, in: place, required, description: meaning, schema }) =>
    name === undefined || schema === undefined
      ? []
      : [row(code(name), `${place}${required === true ? ", required" : ""}`, typeOf(schema), meaning ?? "")],
  );
  const refusals = refusalsOf(operation).filter((each) => !everywhere.includes(each));
  return [
    `## ${summary}`,
    code(call),
    ...(description ? [escaped(description)] : []),
    ...(given.length > 0
      ? [["| parameter | in | type | meaning |\n|---|---|---|---|", ...given].join("\n")]
      : []),
    ...(requestBody === undefined ? [] : ["Body:", ...contentsOf(requestBody)]),
    ...Object.entries(responses)
      .filter(([status]) => isGood(status))
      .flatMap(([status, response]) => [`Answer ${status}:`, ...contentsOf(response)]),
    ...(refusals.length > 0 ? ["Refusals:", refusalsTable(refusals)] : []),
  ].join("\n\n");
}

function contentsOf({ content = {} }: Operation["responses"][string]): string[] {
  const parts = Object.entries(content).map(([type, { schema }]) => {
    if (type === "text/csv") return "Or CSV, as `text/csv`.";
    const intro = type === "application/json" ? "" : `Events of ${code(type)}, each with `;
    return schema.$ref === undefined ? `${intro}${fieldsTable(schema)}` : `${intro}${typeOf(schema)}`;
  });
  return parts.length === 0 ? ["No content."] : parts;
}

/** The fields of a schema, with those of the objects in it. */
function fieldsTable(schema: Schema): string {
  const rows = fieldRows(schema, "");
  return rows.length === 0
    ? typeOf(schema)
    : ["| field | type | meaning |\n|---|---|---|", ...rows].join("\n");
}

function fieldRows(schema: Schema, before: string): string[] {
  const { properties, items, anyOf, required = [] } = schema;
  if (anyOf !== undefined) return anyOf.flatMap((each) => fieldRows(each, before));
  if (items !== undefined) return fieldRows(items, `${before.replace(/\.$/, "")}[].`);
  return Object.entries(properties ?? {}).flatMap(([name, field]) => [
    row(
      code(`${before}${name}`),
      typeOf(field) + (required.includes(name) ? "" : ", optional"),
      meaningOf(field.description),
    ),
    ...fieldRows(field, `${before}${name}.`),
  ]);
}

/** The type says these already. */
function meaningOf(description = ""): string {
  return /^(?:an object with .* only|a value|a time|a list)?(?:, or null)?$/.test(description)
    ? ""
    : description;
}

function typeOf(schema: Schema): string {
  const { $ref, anyOf, items, type, format } = schema;
  if ($ref !== undefined) {
    const name = $ref.split("/").at(-1) ?? "";
    return `[${name}](schemas.md#${name.toLowerCase()})`;
  }
  if (anyOf !== undefined) return anyOf.map(typeOf).join(" or ");
  if (schema.enum !== undefined) return schema.enum.map((value) => code(JSON.stringify(value))).join(" or ");
  if (type === "array") return `list of ${items === undefined ? "values" : typeOf(items)}`;
  if (type === "string" && format === "date-time") return "time";
  return type ?? "any value";
}

/** "409 code" for each code. */
function refusalsOf({ responses }: Operation): string[] {
  return Object.entries(responses)
    .filter(([status]) => !isGood(status))
    .flatMap(([status, { description = "" }]) => [
      ...new Set([...description.matchAll(/`(\w+)`/g)].map(([, name]) => `${status} ${name}`)),
    ]);
}

function refusalsTable(refusals: readonly string[]): string {
  const byStatus = Map.groupBy(refusals, (each) => each.split(" ")[0] ?? "");
  const rows = [...byStatus].map(([status, those]) =>
    row(status, those.map((each) => code(each.split(" ")[1] ?? "")).join(", ")),
  );
  return ["| status | codes |\n|---|---|", ...rows].join("\n");
}

const isGood = (status: string) => status.startsWith("2");
const code = (text: string) => `\`${text}\``;
const escaped = (text: string) => text.replaceAll("<", "&lt;");
const row = (...cells: string[]) =>
  `| ${cells.map((cell) => escaped(cell).replaceAll("|", "\\|")).join(" | ")} |`;
