/**
 * The `sign_in` section: the issuer of OpenID Connect, and the rules about who gets a role or an
 * account. A rule may only name plans that exist.
 */

import * as fields from "../accounts/value-rules.ts";
import { operatorRoles } from "../actors.ts";
import {
  type Condition,
  conditionNameOf,
  isSameIssuer,
  type PlanRule,
  type RoleRule,
  type SignInSettings,
} from "../sign-in/settings.ts";
import { nearest } from "../spelling.ts";
import { inLowerCase } from "../store/sql.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

/** The settings, and the places that a check of the issuer names. */
interface SignInConfig extends SignInSettings {
  where: { issuer: string; clientId: string; clientSecret: string };
}

interface SignInContext {
  plans: readonly string[];
  hasPortal: boolean;
}

/** A secret over plain http could be read on the network. */
const issuerUrl = kind.text(
  "the https URL of the issuer without a query, such as https://login.example.edu (http on this machine only)",
  isIssuerUrl,
  { standIn: "https://localhost" },
);

const clientId = kind.text("the client id that the issuer has given you", isWord);
const clientSecret = kind.text("the client secret that the issuer has given you", isWord, { secret: true });
const claimName = kind.text("the name of a claim of 1 to 100 characters", (text) => /^\S{1,100}$/.test(text));
const shortText = kind.text(fields.contact.rule, (text) => fields.contact.pattern.test(text));

const conditions = {
  group: kind.text(
    "the name of a group of 1 to 1000 characters",
    (text) => text !== "" && text.length <= 1000,
  ),
  email: kind.text(fields.email.rule, (text) => fields.email.pattern.test(text)),
  domain: kind.hostName,
};
const conditionKinds = ["group", "email", "domain"] as const;

export function readSignIn(section: Section, { plans, hasPortal }: SignInContext): SignInConfig {
  const issuer = section.placed("issuer", issuerUrl);
  const client = section.placed("client_id", clientId);
  const secret = section.optionalPlaced("client_secret", clientSecret);
  const operators = section.sections(
    "operators",
    "a list of rules: [{ group: it, role: operator }]",
    (rule) => ({
      ...readCondition(rule),
      role: rule.value("role", kind.oneOf(...operatorRoles)),
    }),
  );
  const accounts = section.sections(
    "accounts",
    "a list of rules: [{ group: students, plan: student }]",
    (rule) => readPlanRule(rule, plans),
  );
  const formerly = section.optionalPlaced("formerly", issuerUrl);
  if (formerly !== null && isSameIssuer(formerly.value, issuer.value)) {
    // Otherwise an address that is given to somebody else would bring the account along.
    section.problem(
      formerly.where,
      `${section.path}.formerly: is the issuer of now; name the one before, or remove it`,
    );
  }
  const linksContacts = section.value("link_contacts", kind.flag, { or: false });
  if (!linksContacts || operators.length > 0 || accounts.length > 0)
    requireRules(section, operators, accounts);
  if (accounts.length > 0 && !hasPortal) {
    section.problem(
      section.where,
      `${section.path}.accounts: people get their accounts in the portal, which is not configured; add the section portal`,
    );
  }
  return {
    issuer: issuer.value,
    clientId: client.value,
    clientSecret: secret?.value ?? null,
    name: section.value("name", shortText, { or: URL.parse(issuer.value)?.hostname ?? "" }),
    groupsClaim: section.value("groups_claim", claimName, { or: "groups" }),
    operators,
    accounts,
    trustsEmail: section.value("trust_email", kind.flag, { or: false }),
    linksContacts,
    lapse: section.value("lapse", kind.lifePeriod, { or: "P90D" }),
    formerly: formerly?.value ?? null,
    contact: section.optional("contact", shortText),
    where: { issuer: issuer.where, clientId: client.where, clientSecret: secret?.where ?? client.where },
  };
}

/** Reads the one condition of a rule. */
function readCondition(rule: Section): Condition {
  const found = conditionKinds.flatMap((name) => {
    const value = rule.optional(name, conditions[name]);
    return value === null ? [] : [{ kind: name, value: name === "group" ? value : inLowerCase(value) }];
  });
  const [only, ...others] = found;
  if (only !== undefined && others.length === 0) return only;
  const names = found.map(({ kind: name }) => name).join(" and ");
  rule.problem(
    rule.where,
    `${rule.path}: found ${names || "no condition"}, expected one of group, email and domain`,
  );
  return only ?? { kind: "group", value: "" };
}

function readPlanRule(rule: Section, plans: readonly string[]): PlanRule {
  const condition = readCondition(rule);
  const plan = rule.placed(
    "plan",
    kind.text("the name of a plan", (text) => text !== ""),
  );
  // A configuration without any plans is reported elsewhere.
  if (plan.given && plan.value !== "" && plans.length > 0 && !plans.includes(plan.value)) {
    const near = nearest(plan.value, plans);
    const help = near === undefined ? `the plans are ${plans.join(", ")}` : `did you mean ${near}?`;
    rule.problem(plan.where, `${rule.path}.plan: there is no plan ${JSON.stringify(plan.value)}; ${help}`);
  }
  return { ...condition, plan: plan.value };
}

function requireRules(section: Section, operators: readonly RoleRule[], accounts: readonly PlanRule[]): void {
  if (operators.length === 0 && accounts.length === 0) {
    section.problem(
      section.where,
      `${section.path}: nobody could sign in without a rule; add operators or accounts`,
    );
  }
  for (const [name, rules] of Object.entries({ operators, accounts })) {
    const first = new Map<string, number>();
    for (const [index, rule] of rules.entries()) {
      const same = conditionNameOf(rule);
      const before = first.get(same);
      first.set(same, before ?? index);
      if (before === undefined || rule.value === "") continue;
      section.problem(
        section.where,
        `${section.path}.${name}[${index}]: ${same} has a rule already, ${name}[${before}]; remove one of them`,
      );
    }
  }
}

function isWord(text: string): boolean {
  return /^[\x21-\x7e]{1,4096}$/.test(text);
}

function isIssuerUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || /[@?#\s]/.test(text) || url.pathname.includes("/.well-known/")) return false;
  const isHere = kind.isLoopback(url.hostname.replace(/^\[|\]$/g, ""));
  return url.protocol === "https:" || (url.protocol === "http:" && isHere);
}
