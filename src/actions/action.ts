/**
 * The actions of operators and of holders of keys, as data. Every face is made from it: the
 * route with its schema, the command with its options, the dialog with its fields, and the rows of
 * the documents.
 * A description has no code of the service: `bind.ts` binds it to that.
 *
 * Pages bundle this file.
 */

import { hasRole, type OperatorRole, type Role } from "../actors.ts";
import type { Code } from "../errors.ts";
import type { Fields, InputOf } from "./field.ts";

const methods = ["GET", "POST", "PATCH", "DELETE"] as const;
type Method = (typeof methods)[number];
type Json = Readonly<Record<string, unknown>>;

/** Why an input is refused although each field is right. */
interface Fault {
  /** Name of the field in the API. */
  param: string;
  message: string;
}

/** What the faces read of an action. */
export interface ActionTexts {
  id: string;
  /** Completes "to ...": also what the command line says of it. */
  title: string;
  /** Further sentences for the API's document. */
  help?: string;
  /** Method and path, with the fields in it: `POST /admin/keys/{key}/rotate`. */
  http: `${Method} /${string}`;
  /** Words of the command with its arguments: `key rotate <key>`. Absent: it has none. */
  cli?: string;
  /** Lines for the help of the command, without the program. */
  examples?: readonly string[];
  /** The least role that may do it. */
  role: Role;
  /** The role that these values need, which may be those of its subject too. Default: `role`. */
  needs?(json: Json): OperatorRole | undefined;
  /** The field with the id under which a repetition changes nothing. */
  once?: string;
  input: Fields;
  /** In addition to those of an account or a key that is not found. */
  refuses: readonly Code[];
  /** The field `format` chooses between JSON and CSV. */
  csv?: true;
  /** Besides 200. 201: something is new. 202: it goes on after the response. */
  status?: 201 | 202;
  form?: ActionForm;
  /** A command and a dialog for each value of a field, in place of one for all. */
  cases?: { field: string; of: Readonly<Record<string, ActionForm & { cli: string }>> };
}

export interface Action<F extends Fields, Result> extends ActionTexts {
  input: F;
  /** Checks rules that concern several fields. */
  check?(input: InputOf<F>): Fault | null;
  /** One sentence about what was done, for people. */
  done?(result: Result): string;
}

/** The dialog of an action. */
interface ActionForm {
  /** `{name}` stands for its subject. */
  title: string;
  /** What it does, above the fields. */
  intro?: string;
  submit: string;
  isDangerous?: boolean;
}

/** Checks the types of a description. */
export function action<const F extends Fields, Result = unknown>(
  description: Action<F, Result>,
): Action<F, Result> {
  return description;
}

/** Returns an action that differs from another one in these parts, for another role. */
export function variantOf<const F extends Fields, Result>(
  { check: _, needs: __, ...base }: ActionTexts & { check?: unknown; done?(result: Result): string },
  parts: Partial<ActionTexts> & { input: F },
): Action<F, Result> {
  return { ...base, ...parts };
}

/** Returns the command and the dialog for these values. */
export function caseOf({ cases, ...action }: ActionTexts, json: Json): Pick<ActionTexts, "cli" | "form"> {
  const form = cases?.of[`${json[cases.field]}`];
  return form === undefined ? action : { cli: form.cli, form };
}

/** Returns the least role that may do it with these values. */
export function neededRole({ role, needs }: Pick<ActionTexts, "role" | "needs">, json: object): Role {
  return needs?.({ ...json }) ?? role;
}

/** Returns the role that somebody with another one would need for it. Null: they may do it. */
export function missingRole(role: Role, action: ActionTexts, json: object = {}): Role | null {
  const needed = neededRole(action, json);
  return hasRole(role, needed) ? null : needed;
}

/** Returns the method, the path, and the names of the fields in the path. */
export function routeOf({ http }: Pick<ActionTexts, "http">): {
  method: Method;
  path: string;
  names: string[];
} {
  const method = methods.find((each) => http.startsWith(`${each} `)) ?? "GET";
  const path = http.slice(method.length + 1);
  return { method, path, names: [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name) };
}

/** Returns the request that runs an action with these values. Undefined ones are absent. */
export function requestOf({ http, input }: Pick<ActionTexts, "http" | "input">, json: Json) {
  const { method, path, names } = routeOf({ http });
  const target = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(`${json[name]}`));
  const others = Object.entries(json).filter(([name, value]) => value !== undefined && !names.includes(name));
  // An action whose fields are all in its path has no body.
  if (method !== "GET" && Object.keys(input).length > names.length)
    return { method, path: target, body: Object.fromEntries(others) };
  const query = new URLSearchParams(others.map(([name, value]) => [name, `${value}`])).toString();
  return { method, path: query === "" ? target : `${target}?${query}`, body: null };
}
