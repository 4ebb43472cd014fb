/**
 * The `events` section: receivers of events, the shares of spent credits that are events, and
 * mail. Without the section no event is written.
 */
import { type EventSettings, type EventType, eventTypes } from "../ledger/events.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export type EventsConfig = ReturnType<typeof readEvents>;
export type EndpointConfig = EventsConfig["endpoints"][number];
export type MailConfig = NonNullable<EventsConfig["mail"]>;

/** Events that are sent by mail. `balance.cap`: those of `balance.low` about a cap. */
export const mailTypes = [
  "balance.low",
  "balance.cap",
  "balance.exhausted",
  "key.created",
  "key.expiring",
  "operator.key_created",
  "operator.role_given",
  "audit.failed",
  "model.down",
  "model.out_of_credit",
] as const satisfies readonly (EventType | "balance.cap")[];
export type MailType = (typeof mailTypes)[number];

/** The endpoint of mail in lists of deliveries. */
export const mailEndpoint = "mail";

const secret = kind.text(
  "whsec_ and 24 to 64 random bytes in base64 (such as whsec_$(openssl rand -base64 32))",
  (value) => {
    const [, encoded] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(value) ?? [];
    const bytes = Buffer.from(encoded ?? "", "base64");
    return bytes.toString("base64") === encoded && bytes.length >= 24 && bytes.length <= 64;
  },
  { secret: true },
);

const endpointUrl = kind.text(
  "a URL that begins with http:// or https://, without a user or a fragment",
  (value) => /^https?:\/\//.test(value) && URL.canParse(value) && isPlain(new URL(value)),
  { standIn: "http://localhost" },
);

function isPlain({ username, password, hash }: URL): boolean {
  return username === "" && password === "" && hash === "";
}

/** A type, or all types of a topic. */
const typePattern = kind.text(
  `a type of event (${eventTypes.join(", ")}), or all of a topic such as "balance.*"`,
  (value) => typesOf(value).length > 0,
);

function typesOf(pattern: string): EventType[] {
  return eventTypes.filter(
    (type) => type === pattern || (pattern.endsWith(".*") && type.startsWith(pattern.slice(0, -1))),
  );
}

export function readEvents(section: Section) {
  const percents = section.list(
    "thresholds",
    kind.whole(1, 100),
    "a list of whole per cents of spent credits: [80, 90, 100]",
    { or: [80, 90, 100] },
  );
  const rule = {
    what: "endpoint",
    pattern: /^[a-z\d][a-z\d_-]{0,63}$/,
    says: "1 to 64 letters a to z, digits, - and _",
  };
  const endpoints = section.hasSection("endpoints")
    ? section.entries("endpoints", rule, (name, each) => readEndpoint(name, each))
    : [];
  const mail = section.optionalSection("mail", readMail);
  if (endpoints.length === 0 && mail === null)
    section.problem(
      section.where,
      "events has neither endpoints nor mail, so nothing would receive its events",
    );
  return {
    /** Ascending. */
    thresholdPercents: [...new Set(percents.values)].sort((one, other) => one - other),
    /**
     * A key that expires within this time is an event. Events are kept for 30 days, and a key
     * whose event was deleted would be one again.
     */
    expiringMs: section.value("expiring_days", kind.whole(1, 30), { or: 7 }) * 86_400_000,
    /** Private networks that endpoints may be in. */
    networks: section.list("networks", kind.network, 'a list of addresses and networks: ["10.0.0.0/8"]')
      .values,
    endpoints,
    /** Null: no mail. */
    mail,
  };
}

function readEndpoint(name: string, section: Section) {
  if (name === mailEndpoint)
    section.problem(
      section.where,
      `${section.path}: "${mailEndpoint}" is the name of the mail server; choose another one`,
    );
  const url = section.value("url", endpointUrl);
  const current = section.value("secret", secret);
  const previous = section.optional("previous_secret", secret);
  const types = section.list("types", typePattern, 'a list of types: ["balance.*", payment.added]', {
    or: [],
  });
  return {
    name,
    url,
    /** The current secret first. */
    secrets: previous === null ? [current] : [current, previous],
    types: types.given ? types.values.flatMap(typesOf) : [...eventTypes],
  };
}

const mailAddress = kind.text(
  "an e-mail address, or a name with one: Inkwell <inkwell@example.edu>",
  (value) => /^(?:[^<>\r\n"]*<[^\s<>@]+@[^\s<>@]+>|[^\s<>@]+@[^\s<>@]+)$/.test(value),
  { standIn: "inkwell@localhost" },
);

const noLineEnd = kind.text("a text without line ends", (value) => value !== "" && !/[\r\n\0]/.test(value));

function readMail(section: Section) {
  const tls = section.value("tls", kind.oneOf("required", "immediate", "none"), { or: "required" });
  const port = { required: 587, immediate: 465, none: 25 }[tls];
  const user = section.placed("user", noLineEnd, { or: "" });
  const password = section.optional("password", { ...noLineEnd, secret: true });
  if ((user.value === "") !== (password === null))
    section.problem(user.where, `${section.path}: user and password go together; set both or none of them`);
  const off = section.list(
    "off",
    kind.oneOf(...mailTypes),
    `a list of kinds of mail: [${mailTypes.join(", ")}]`,
  );
  const templates = section.placed("templates", kind.filePath, { or: "" });
  return {
    host: section.value("host", kind.host),
    port: section.value("port", kind.whole(1, 65_535, "a port from 1 to 65535"), { or: port }),
    /** `required`: STARTTLS. `immediate`: TLS from the first byte. */
    tls,
    user: user.value === "" ? null : user.value,
    password,
    from: section.value("from", mailAddress),
    /** Get mail about the service. */
    operators: section.list("operators", mailAddress, "a list of e-mail addresses: [ops@example.edu]").values,
    /** Kinds that are sent. */
    types: mailTypes.filter((type) => !off.values.includes(type)),
    /** Folder with texts of its own. Null: those of Inkwell. */
    templates: templates.given ? section.resolve(templates) : null,
  };
}

/** Returns what commits need. */
export function eventSettingsOf(events: EventsConfig | null): EventSettings | null {
  return events === null ? null : { thresholdPercents: events.thresholdPercents };
}

/** Returns the receivers, with the types of events that each gets. */
export function wantedEventsOf(
  events: EventsConfig | null,
): { name: string; types: ReadonlySet<EventType> }[] {
  const { endpoints = [], mail = null } = events ?? {};
  const all: { name: string; types: readonly EventType[] }[] = [...endpoints];
  if (mail !== null) {
    const types = mail.types.map((type) => (type === "balance.cap" ? "balance.low" : type));
    all.push({ name: mailEndpoint, types });
  }
  return all.map(({ name, types }) => ({ name, types: new Set(types) }));
}
