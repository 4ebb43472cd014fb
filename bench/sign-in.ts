/** Signs in as a page of the console or the portal does. */
import { randomBytes } from "node:crypto";

/** Headers of every request of a page. */
export const pageHeader = { "x-inkwell-request": randomBytes(32).toString("base64url") };

/** `url` is that of the session; `secret` is its body. Returns the cookie. */
export async function signIn(url: string, secret: { token: string } | { key: string }): Promise<string> {
  const response = await fetch(url, {
    method: "POST",
    headers: { ...pageHeader, "content-type": "application/json" },
    body: JSON.stringify(secret),
  });
  if (!response.ok) throw new Error(`signing in failed: ${response.status} ${await response.text()}`);
  // An unread body keeps its connection.
  await response.text();
  return response.headers.get("set-cookie")?.split(";")[0] ?? "";
}
