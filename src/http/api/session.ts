/** What `/admin/session` and the portal's `/api/session` have in common. */
import { isoTime, objectFor, time } from "../../accounts/json-objects.ts";
import { idleEndMs } from "../../accounts/sessions.ts";
import type { SessionRow } from "../../store/sessions.ts";

/** Largest body of a sign-in. A token has at most 512 characters. */
export const signInBytesMax = 4096;

export const sessionObject = objectFor<SessionRow>("Session")({
  expires_at: [time, ({ endsMs }) => isoTime(endsMs)],
  idle_expires_at: [time, (row) => isoTime(idleEndMs(row))],
});

/** For the OpenAPI documents. */
export const header = { requestHeader: [] };
export const bySession = [{ session: [], ...header }];
