/**
 * Buttons, and what the role of the session forbids, by the descriptions of the actions: the one place
 * that turns them off. Such a button says why if it is pointed at, read or pressed.
 */
import { type ComponentProps, createContext } from "preact";
import { useContext } from "preact/hooks";
import { type ActionTexts, missingRole } from "../../actions/action.ts";
import { toast } from "./toasts.tsx";
import type { Session } from "./types.ts";

/** Who is signed in. Null: the page does not know yet, and the service decides. */
export const Who = createContext<Session | null>(null);

interface Wanted {
  /** Absent: everybody may do it. */
  action?: ActionTexts | undefined;
  /** The values that are known, as JSON, and those of the subject. */
  json?: object | undefined;
}

/** Returns why the session may not do it. Null: it may. */
export function useForbidden({ action, json }: Wanted): string | null {
  const who = useContext(Who);
  if (who === null || action === undefined) return null;
  const missing = missingRole(who.role ?? "holder", action, json);
  return missing && `This needs the role ${missing}.`;
}

/**
 * A button, which submits no form. One whose action is forbidden keeps the focus, so that its reason
 * can be read.
 */
export function Button({ action, json, ...button }: Wanted & ComponentProps<"button">) {
  const reason = useForbidden({ action, json });
  const off = reason !== null && {
    "aria-disabled": true,
    title: reason,
    onClick: (event: Event) => {
      event.preventDefault();
      toast(reason);
    },
  };
  return <button type="button" {...button} {...off} />;
}
