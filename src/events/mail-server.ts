/** Sends one mail over SMTP, in bounded time. Throws the server's error, without addresses. */
import type { MailConfig } from "../config/events.ts";

interface MailMessage {
  /** An address, or those of the configuration, which may have names. */
  to: string | readonly string[];
  subject: string;
  text: string;
  /** Of the message. */
  id: string;
}

/** Returns the answer of the server. The library is loaded with the first mail. */
export async function sendMail(
  { host, port, tls, user, password, from }: MailConfig,
  { to, subject, text, id }: MailMessage,
  timeoutMs: number,
): Promise<string> {
  const { createTransport } = await import("nodemailer");
  const transport = createTransport({
    host,
    port,
    secure: tls === "immediate",
    requireTLS: tls === "required",
    ignoreTLS: tls === "none",
    ...(user === null || password === null ? {} : { auth: { user, pass: password } }),
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    dnsTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  try {
    const sent = transport.sendMail({
      // The library reads a text as a list: "a,b@x.example" would be the mailbox of b.
      from,
      to: typeof to === "string" ? { name: "", address: to } : [...to],
      subject,
      text,
      messageId: `<${id}@${hostOf(from)}>`,
      headers: { "auto-submitted": "auto-generated" },
    });
    const { response, rejected } = await within(sent, timeoutMs);
    const refused = rejected.length === 0 ? "" : `; ${rejected.length} of the addresses were refused`;
    return `${response ?? ""}${refused}`;
  } catch (error) {
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

/** A server that sends a byte now and then keeps its connection, and not this process. */
async function within<T>(work: Promise<T>, ms: number): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`the mail server took longer than ${ms / 1000} s`)), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}
