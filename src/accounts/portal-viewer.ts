/**
 * The viewer of the portal: the holder of a key, or a person who has signed in. Both see one
 * account.
 */

import { type Actor, keyHolder } from "../actors.ts";
import { blankKey } from "../ledger/key-facts.ts";
import type { KeyAuthority } from "../ledger/rows.ts";
import type { FoundHolder } from "../store/people.ts";
import type { FoundKey } from "../store/store.ts";

/** As of the request: a key or a person, with the account and its plan. */
export type Viewer = FoundKey | FoundHolder;

/** The rights of a person over keys: how many work at the same time, and how long one may live. */
export interface PersonKeys {
  most: number;
  /** ISO 8601. Null: a key may have no expiry. */
  life: string | null;
}

/** If the plan does not say, or has left the configuration. */
export const personKeysDefault: PersonKeys = { most: 10, life: null };

export function isPerson(viewer: Viewer): viewer is FoundHolder {
  return "person" in viewer;
}

export function accountOf(viewer: Viewer): string {
  return isPerson(viewer) ? viewer.account.id : viewer.key.account;
}

export function viewerActorOf(viewer: Viewer): Actor {
  return isPerson(viewer) ? { by: `person:${viewer.person.id}`, role: "holder" } : keyHolder(viewer.key.id);
}

/** The most that the keys may do that a viewer makes or changes. */
export function authorityOf(viewer: Viewer): KeyAuthority {
  if (!isPerson(viewer)) return viewer.key;
  const { person, account } = viewer;
  return { ...blankKey, id: person.id, account: account.id, portal: "account" };
}
