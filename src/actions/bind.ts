/** Binds actions to the code of the service, which runs them. */
import type { TSchema } from "typebox";
import { invalidValue, requireRole } from "../accounts/refusals.ts";
import type { Role } from "../actors.ts";
import { type Action, type ActionTexts, neededRole } from "./action.ts";
import { Created } from "./created.ts";
import type { Fields, InputOf } from "./field.ts";
import { inputOf } from "./input.ts";

interface Outcome<Result> {
  result: Result;
  isNew: boolean;
  /** What was done, for people. */
  done: string | null;
}

/** `Context`: what the code needs, and who acts. */
export interface BoundAction<Context, Result = unknown> {
  action: ActionTexts;
  /** Schema of the result, or of a row of the result if it is a page. */
  result: TSchema;
  /** Throws an `invalid_value` if an object that fits the schemas breaks another rule. */
  check(json: object, timezone: string): void;
  /**
   * Checks the object and runs the action. Throws the refusals of the action, and `not_permitted`
   * to those without its role.
   */
  run(context: Context, json: object): Promise<Outcome<Result>>;
}

/** Fixes the type of the context. `timezone`: the zone of local days. `role`: of who acts. */
export function bindFor<Context extends { readonly timezone: string; readonly role: Role }>() {
  return <F extends Fields, Result>(
    action: Action<F, NoInfer<Result>>,
    result: TSchema,
    run: (context: Context, input: InputOf<F>) => Promise<Result | Created<Result>>,
  ): BoundAction<Context, Result> => {
    const read = (json: object, timezone: string) => {
      const input = inputOf(action.input, json, timezone);
      const fault = action.check?.(input) ?? null;
      if (fault !== null) throw invalidValue(fault.param, fault.message);
      return input;
    };
    return {
      action,
      result,
      check: (json, timezone) => void read(json, timezone),
      run: async (context, json) => {
        const input = read(json, context.timezone);
        requireRole(context.role, neededRole(action, json));
        const outcome = await run(context, input);
        const isNew = outcome instanceof Created;
        const made = isNew ? outcome.result : outcome;
        return { result: made, isNew, done: action.done?.(made) ?? null };
      },
    };
  };
}
