/** Sends one mail over SMTP. Throws the server's error, without addresses. */
import type { MailConfig } from "../config/events.ts";

interface MailMessage {
  /** An address, or those of the configuration, which may have names. */
  to: string | readonly string[];
  subject: string;
  text: string;
  /** Of the message. */
  id: string;
}

/** Time to look up, to connect, and for the greeting. */
const connectMs = 20_000;

/**
 * Returns the answer of the server. `signal` bounds the time: a server may have taken a mail that
 * was broken off before its answer. The library is loaded with the first mail.
 */
export async function sendMail(
  { host, port, tls, user, password, from }: MailConfig,
  { to, subject, text, id }: MailMessage,
  signal: AbortSignal,
): Promise<string> {
  const { createTransport } = await import("nodemailer");
  const transport = createTransport({
    host,
    port,
    secure: tls === "immediate",
    requireTLS: tls === "required",
    ignoreTLS: tls === "none",
    ...(user === null || password === null ? {} : { auth: { user, pass: password } }),
    connectionTimeout: connectMs,
    greetingTimeout: connectMs,
    dnsTimeout: connectMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  try {
    const { response, rejected } = await transport.sendMail({
      // The library reads a text as a list: "a,b@x.example" would be the mailbox of b.
      from,
      to: typeof to === "string" ? { name: "", address: to } : [...to],
      subject,
      text,
      messageId: `<${id}@${hostOf(from)}>`,
      headers: { "auto-submitted": "auto-generated" },
      signal,
    });
    const refused = rejected.length === 0 ? "" : `; ${rejected.length} of the addresses were refused`;
    return `${response ?? ""}${refused}`;
  } catch (error) {
    if (signal.aborted) throw new Error("the mail server had not answered when its time was over");
    // Servers repeat the address that they refuse, and their words reach the log.
    throw error instanceof Error ? withoutAddresses(error) : error;
  } finally {
    transport.close();
  }
}

function withoutAddresses(error: Error): Error {
  const message = error.message.replace(/[^\s<>"'(),:;]+@[^\s<>"'(),:;]+/g, "(address)");
  return Object.assign(
    new Error(message),
    "responseCode" in error ? { responseCode: error.responseCode } : {},
  );
}

function hostOf(from: string): string {
  return /@([^\s<>@]+)>?$/.exec(from)?.[1] ?? "localhost";
}
