/** Dialogs for keys. A new secret is shown once, and limits of the session's key stand at the fields. */
import { ActionDialog } from "../../shared/action.tsx";
import { apiPath, get, send } from "../../shared/api.ts";
import { type FieldOf, momentIn, type Values } from "../../shared/field.tsx";
import { RotateDialog } from "../../shared/key-values.tsx";
import { counted, wholeNumber, wholeNumberIn } from "../../shared/numbers.ts";
import { Secret } from "../../shared/secret.tsx";
import { exactTime } from "../../shared/times.ts";
import type { Key, NewKey, Page, Receipt } from "../../shared/types.ts";
import { Time } from "../../shared/values.tsx";
import { keyTitle } from "../key-names.ts";

interface Props {
  of: Key;
  /** Whether it is the key of the session. */
  isOwn: boolean;
  close(isDone: boolean): void;
}

const limits = [
  ["requests_per_minute", "Requests per minute"],
  ["tokens_per_minute", "Tokens per minute"],
  ["concurrent", "Requests at once"],
] as const;

/** Hints say what the key of the session allows, which is also the default. */
function fieldsFor(creator: Key): FieldOf[] {
  const { expires_at, models } = creator;
  return [
    { name: "name", label: "Name", isRequired: true, hint: "For whom or what the key is." },
    { name: "budget.credits", label: "Budget in credits", kind: "number", min: 1 },
    {
      ...{ name: "budget.every", label: "Budget period", kind: "select" },
      hint: "The budget is full again after each period.",
      options: [
        ["", "no budget"],
        ["PT5H", "5 hours"],
        ["P1D", "day"],
        ["P1W", "week"],
        ["P1M", "month"],
      ],
    },
    {
      ...{ name: "models", label: "Models", initial: models.join(", ") },
      hint: models.includes("*")
        ? "Ids separated by commas, or * for all models of the plan."
        : `Ids separated by commas. Your key allows: ${models.join(", ")}.`,
    },
    {
      ...{ name: "expires_at", label: "Expires at (UTC)", kind: "moment" },
      ...(expires_at === null
        ? {}
        : {
            hint: `At the latest when your key expires, which is also the default: ${exactTime(Date.parse(expires_at))}.`,
          }),
    },
    ...limits.map(([name, label]): FieldOf => {
      const max = creator.limits[name];
      return {
        ...{ name, label, kind: "number", min: 1 },
        ...(max === null
          ? {}
          : { hint: `At most ${wholeNumber(max)}, as your key allows, which is also the default.` }),
      };
    }),
  ];
}

/** The settings as the API takes them. Empty fields are left out. */
function settingsIn(values: Values): object {
  const numberAt = (name: string) => wholeNumberIn(values[name] ?? "");
  const models = (values.models ?? "").split(",").map((id) => id.trim());
  const budget = given({ credits: numberAt("budget.credits"), every: values["budget.every"] || null });
  return given({
    name: values.name?.trim() || null,
    models: models.some((id) => id !== "") ? models.filter((id) => id !== "") : null,
    expires_at: momentIn(values.expires_at ?? ""),
    ...Object.fromEntries(limits.map(([name]) => [name, numberAt(name)])),
    budget: Object.keys(budget).length === 0 ? null : budget,
  });
}

function given(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

export function CreateKey({ creator, close }: { creator: Key; close(isDone: boolean): void }) {
  return (
    <ActionDialog
      title="Create a key"
      kind="key"
      submit="Create the key"
      intro={<p>The key uses the credits of your account. In these pages it sees and rotates only itself.</p>}
      fields={fieldsFor(creator)}
      send={async (values, operationId) => {
        const body = { operation_id: operationId, ...settingsIn(values) };
        const { key } = await send<NewKey>("POST", apiPath("keys"), body);
        return {
          done: "The key is created.",
          result: <Secret secret={key} lost="Revoke this key in the list, and create another one." />,
        };
      }}
      close={close}
    />
  );
}

export function RenameKey({ of: key, close }: Omit<Props, "isOwn">) {
  return (
    <ActionDialog
      title={`Rename the key ${keyTitle(key)}`}
      kind="rename"
      submit="Save the name"
      fields={[
        { name: "name", label: "Name", initial: key.name ?? "", hint: "For whom or what the key is." },
      ]}
      send={async ({ name = "" }, operationId) => {
        await send("PATCH", apiPath("keys", key.id), {
          operation_id: operationId,
          name: name.trim() || null,
        });
        return { done: "The name is saved." };
      }}
      close={close}
    />
  );
}

export function RotateKey({ of: key, isOwn, close }: Props) {
  return (
    <RotateDialog
      name={keyTitle(key)}
      path={apiPath("keys", key.id, "rotate")}
      note={isOwn ? "You stay signed in here. Other sessions of this key end." : null}
      close={close}
    />
  );
}

/** The preview shows whether somebody uses the key. */
export function RevokeKey({ of: key, isOwn, close }: Props) {
  return (
    <ActionDialog
      title={`Revoke the key ${keyTitle(key)}`}
      kind="revoke"
      submit="Revoke for good"
      isDangerous
      intro={<p>This cannot be undone. The preview shows what ends.</p>}
      preview={async () => {
        const query = {
          key: key.id,
          from: new Date(Date.now() - 24 * 60 * 60_000).toISOString(),
          limit: 100,
        };
        const { data, next } = await get<Page<Receipt>>(apiPath("requests"), query);
        const count = `${next === null ? "" : "more than "}${counted(data.length, "request")}`;
        return (
          <ul>
            <li>
              Requests with the secret …{key.last_four} are refused from now on; running ones may finish. In
              the last 24 hours it made {count}. It was last used <Time at={key.last_used_at} />.
            </li>
            {key.old_secret_until !== null && <li>Its secret from before the rotation ends too.</li>}
            <li>
              {isOwn ? (
                <strong>You are signed in with this key: this session ends too.</strong>
              ) : (
                "Sessions of this key in the portal end."
              )}
            </li>
            <li>The receipts of the key stay.</li>
          </ul>
        );
      }}
      send={async () => {
        await send("DELETE", apiPath("keys", key.id));
        return { done: "The key is revoked." };
      }}
      close={close}
    />
  );
}
