/**
 * Checks the settings of signing in at the issuer itself: its URL, the client and its secret, the
 * addresses to which it sends browsers back, and whether it knows of groups. Nobody signs in.
 */
import { boundedFetch } from "./bounded-fetch.ts";
import { isAway, isClientRefused, reasonOf } from "./failures.ts";
import { Issuer, IssuerMisdescribedError } from "./issuer.ts";
import type { SignInSettings } from "./settings.ts";

interface CheckedSettings extends SignInSettings {
  /** The places of the settings in the configuration. */
  where: { issuer: string; clientId: string; clientSecret: string };
}

/** An address of this service to which the issuer sends browsers back. */
interface CallbackAddress {
  url: string;
  /** The setting that it follows from, and its place. */
  setting: string;
}

interface OnlineReport {
  /** Faults, each with its place. */
  problems: string[];
  /** What may be wrong. */
  remarks: string[];
}

export async function checkOnline(
  settings: CheckedSettings,
  callbacks: readonly CallbackAddress[],
): Promise<OnlineReport> {
  const { where, operators, accounts, groupsClaim } = settings;
  const report: OnlineReport = { problems: [], remarks: [] };
  const issuer = new Issuer(settings);
  try {
    const { claims_supported: claims } = await issuer.metadata();
    const needsGroups = [...operators, ...accounts].some(({ kind }) => kind === "group");
    if (needsGroups && claims !== undefined && !claims.includes(groupsClaim)) {
      report.remarks.push(
        `${where.issuer}: sign_in: the issuer does not list the claim ${groupsClaim}, which rules about groups need. Set it up there, or set sign_in.groups_claim.`,
      );
    }
  } catch (error) {
    if (!isAway(error) && !(error instanceof IssuerMisdescribedError)) throw error;
    report.problems.push(
      `${where.issuer}: sign_in.issuer: ${settings.issuer} cannot be used: ${reasonOf(error)}`,
    );
    return report;
  }
  await checkClient(issuer, settings, callbacks[0]?.url ?? "http://localhost", report);
  for (const callback of callbacks) await checkCallback(issuer, callback, report);
  return report;
}

async function checkClient(
  issuer: Issuer,
  { where, clientId }: CheckedSettings,
  redirectUri: string,
  { problems }: OnlineReport,
): Promise<void> {
  try {
    await issuer.tryClient(redirectUri);
  } catch (error) {
    if (isClientRefused(error)) {
      problems.push(
        `${where.clientSecret}: sign_in.client_secret: the issuer refuses the client ${clientId} with this secret (${reasonOf(error)})`,
      );
      return;
    }
    problems.push(`${where.issuer}: sign_in.issuer: ${reasonOf(error)}`);
  }
}

/** Asks for a sign-in without a page. An issuer sends its refusal to addresses that it knows. */
async function checkCallback(
  issuer: Issuer,
  { url, setting }: CallbackAddress,
  { problems, remarks }: OnlineReport,
): Promise<void> {
  const begun = { redirectUri: url, state: "check", nonce: "check", verifier: "x".repeat(43) };
  const page = await issuer.begin(begun, false);
  page.searchParams.set("prompt", "none");
  try {
    const options = { method: "GET", headers: {}, redirect: "manual", body: undefined } as const;
    const { status, headers } = await boundedFetch(page.href, options);
    const target = headers.get("location") ?? "";
    if (target.startsWith(url)) return;
    if (status < 400) {
      remarks.push(
        `${setting}: the issuer does not tell whether it accepts ${url}. It has to be registered there.`,
      );
      return;
    }
    problems.push(
      `${setting}: the issuer does not accept ${url} (status ${status}); register it there as a redirect URL`,
    );
  } catch (error) {
    if (!isAway(error)) throw error;
    problems.push(`${setting}: ${reasonOf(error)}`);
  }
}
