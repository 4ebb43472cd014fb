/**
 * Sends invitations by mail. Nothing is stored or logged of a mail: its link is the secret of a
 * person.
 */
import { randomUUID } from "node:crypto";
import type { InvitationMail, InvitationSettings } from "../accounts/invitations.ts";
import type { MailConfig } from "../config/events.ts";
import type { PortalConfig } from "../config/portal.ts";
import { shortTime } from "../units.ts";
import { sendMail } from "./mail-server.ts";
import { filled, mailTextOf } from "./mail-texts.ts";

/** Time for a mail: somebody waits for it. */
const requestMs = 20_000;

interface Configured {
  portal: Pick<PortalConfig, "url"> | null;
  events: { mail: MailConfig | null } | null;
}

/** Returns how a configuration gives invitations out. */
export function invitationSettingsOf({ portal, events }: Configured): InvitationSettings {
  const mail = events?.mail ?? null;
  return {
    portalUrl: portal?.url ?? null,
    send: mail && ((invitation) => sendInvitation(mail, invitation)),
  };
}

async function sendInvitation(config: MailConfig, invitation: InvitationMail): Promise<void> {
  const { account, owner, email, link, portalUrl, expiresMs } = invitation;
  const known = account === null ? {} : { account, owner: owner ?? account };
  const values = { link, portal: portalUrl, expires: shortTime(expiresMs), ...known };
  const name = account === null ? "join" : "invitation";
  const { subject, text } = filled(await mailTextOf(name, config.templates), values);
  await sendMail(config, { to: email, subject, text, id: randomUUID() }, AbortSignal.timeout(requestMs));
}
