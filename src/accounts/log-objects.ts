/** The JSON objects of operator keys and of the log of changes. */
import Type, { type Static } from "typebox";
import { operatorRoles } from "../actors.ts";
import { buckets } from "../ledger/rows.ts";
import { changeKinds, type LoggedChange } from "../store/change-log.ts";
import type { OperatorKeyRow } from "../store/operator-keys.ts";
import {
  fieldsFor,
  isoTime,
  isoTimeOrNull,
  objectFor,
  orNull,
  text,
  time,
  valueFields,
} from "./json-objects.ts";
import type { ShownOperatorKey } from "./operator-key-actions.ts";

const keyFields = fieldsFor<OperatorKeyRow>()({
  id: [text, (row) => row.id],
  name: [text, (row) => row.name],
  role: [Type.Enum([...operatorRoles]), (row) => row.role],
  made_by: [text, (row) => row.by],
  last_four: [text, (row) => row.lastFour],
  created_at: [time, (row) => isoTime(row.createdMs)],
  expires_at: [time, (row) => isoTime(row.expiresMs)],
  last_used_at: [orNull(time), (row) => isoTimeOrNull(row.usedMs)],
  ended_at: [orNull(time), (row) => isoTimeOrNull(row.endedMs)],
});

export const operatorKeyObject = objectFor<OperatorKeyRow>("OperatorKey")(keyFields);
export type OperatorKeyJson = Static<typeof operatorKeyObject.schema>;

export const newOperatorKeyObject = objectFor<OperatorKeyRow & Pick<ShownOperatorKey, "key">>(
  "NewOperatorKey",
)({
  key: [orNull(Type.String({ description: "the key itself: shown once" })), ({ key }) => key],
  ...keyFields,
});
export type NewOperatorKeyJson = Static<typeof newOperatorKeyObject.schema>;

export const changeObject = objectFor<LoggedChange>("Change")({
  at: [time, (row) => isoTime(row.atMs)],
  kind: [Type.Enum([...changeKinds]), (row) => row.kind],
  by: [text, (row) => row.by],
  account: [orNull(text), (row) => row.account],
  subject: [orNull(Type.String({ description: "the key, payment or operator key" })), (row) => row.subject],
  operation: [orNull(text), (row) => row.op],
  bucket: [orNull(Type.Enum([...buckets])), (row) => row.bucket],
  amount_micro: [
    orNull(Type.Integer({ description: "micro-credits that were added, or taken if negative" })),
    (row) => row.amountMicro,
  ],
  ...valueFields,
});
