/** The JSON objects of links by which many people join. */
import Type, { type Static } from "typebox";
import { accountStates } from "../ledger/rows.ts";
import { hasEnded, type LinkAccount, type LinkRow } from "../store/links.ts";
import type { EpochMs } from "../units.ts";
import {
  component,
  count,
  fieldsFor,
  isoTime,
  isoTimeOrNull,
  objectFor,
  orNull,
  text,
  time,
} from "./json-objects.ts";

const linkStates = ["open", "full", "ended"] as const;

/** A link, and the time at which it is shown. */
interface LinkAt {
  row: LinkRow;
  atMs: EpochMs;
}

const fields = fieldsFor<LinkAt>()({
  id: [text, ({ row }) => row.id],
  name: [text, ({ row }) => row.name],
  plan: [text, ({ row }) => row.plan],
  state: [Type.Enum([...linkStates]), ({ row, atMs }) => stateOf(row, atMs)],
  seats: [count, ({ row }) => row.seats],
  taken: [
    Type.Integer({ minimum: 0, description: "seats with an account; a closed account frees none" }),
    ({ row }) => row.taken,
  ],
  domain: [
    orNull(Type.String({ description: "the domain of the addresses that may join" })),
    ({ row }) => row.domain,
  ],
  ends_at: [time, ({ row }) => isoTime(row.endsMs)],
  accounts_end_at: [orNull(time), ({ row }) => isoTimeOrNull(row.accountsEndMs)],
  made_by: [text, ({ row }) => row.by],
  created_at: [time, ({ row }) => isoTime(row.createdMs)],
  ended_at: [orNull(time), ({ row }) => isoTimeOrNull(row.endedMs)],
});

export const linkObject = objectFor<LinkAt>("Link")(fields);
export type LinkJson = Static<typeof linkObject.schema>;

export const newLinkObject = objectFor<LinkAt & { link: string | null }>("NewLink")({
  link: [
    orNull(Type.String({ description: "the URL for the people who join: shown once" })),
    ({ link }) => link,
  ],
  ...fields,
});
export type NewLinkJson = Static<typeof newLinkObject.schema>;

export const seatCounts = component("LinkSeats", {
  waiting: Type.Integer({ minimum: 0, description: "mailed, and not used yet" }),
  joined: count,
  used: Type.Integer({ minimum: 0, description: "accounts with a finished request" }),
});

export const linkAccountObject = objectFor<LinkAccount>("LinkAccount")({
  account: [text, ({ account }) => account],
  person: [text, ({ person }) => person],
  name: [
    orNull(Type.String({ description: "as the person has typed it: nobody has confirmed it" })),
    ({ name }) => name,
  ],
  name_confirmed: [Type.Boolean(), () => false],
  joined_at: [time, ({ joinedMs }) => isoTime(joinedMs)],
  state: [Type.Enum([...accountStates]), ({ state }) => state],
  used: [Type.Boolean({ description: "whether a request has finished" }), ({ hasUsed }) => hasUsed],
});
export type LinkAccountJson = Static<typeof linkAccountObject.schema>;

export const linkClosingObject = objectFor<{ link: LinkAt; closed: number }>("LinkClosing")({
  id: [text, ({ link }) => link.row.id],
  closed: [
    Type.Integer({ minimum: 0, description: "accounts of the link that are closed, also those from before" }),
    ({ closed }) => closed,
  ],
  state: [Type.Enum([...linkStates]), ({ link: { row, atMs } }) => stateOf(row, atMs)],
});
export type LinkClosingJson = Static<typeof linkClosingObject.schema>;

function stateOf(row: LinkRow, atMs: EpochMs): (typeof linkStates)[number] {
  if (hasEnded(row, atMs)) return "ended";
  return row.taken < row.seats ? "open" : "full";
}
