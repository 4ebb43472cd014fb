/** The section `sign_in`: what it means, and one message with a line for each fault. */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration has placeholders of
// this form.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { changesBetween } from "../../src/config/changes.ts";
import { type Env, load, problemsOf } from "../fixtures/configuration.ts";

const good = `sign_in:
  issuer: https://login.example.edu
  client_id: inkwell
  client_secret: "\${OIDC_SECRET}"
  operators: [{ group: it-staff, role: operator }, { email: Ada@Example.edu, role: owner }]
  accounts:  [{ group: students, plan: starter }, { domain: example.edu, plan: starter }]
portal: {}
`;
const env: Env = { OIDC_SECRET: "a-secret-of-the-client" };

/** The faults of the section, from a configuration that the service starts with. */
function faultsOf(yaml: string, variables: Env = env): readonly string[] {
  const config = load(yaml, variables);
  assert.equal(config.signIn === null, config.signInProblems.length > 0);
  return config.signInProblems;
}

describe("sign_in", () => {
  test("has a role or a plan for groups, addresses and domains, and defaults for the rest", () => {
    const { signIn } = load(good, env);
    assert.deepEqual(signIn, {
      issuer: "https://login.example.edu",
      clientId: "inkwell",
      clientSecret: "a-secret-of-the-client",
      name: "login.example.edu",
      groupsClaim: "groups",
      operators: [
        { kind: "group", value: "it-staff", role: "operator" },
        { kind: "email", value: "ada@example.edu", role: "owner" },
      ],
      accounts: [
        { kind: "group", value: "students", plan: "starter" },
        { kind: "domain", value: "example.edu", plan: "starter" },
      ],
      trustsEmail: false,
      linksContacts: false,
      lapse: "P90D",
      formerly: null,
      contact: null,
      where: { issuer: "inkwell.yaml:2", clientId: "inkwell.yaml:3", clientSecret: "inkwell.yaml:4" },
    });
    assert.equal(load("listen: { port: 1 }").signIn, null);
    const contacts = good
      .replace(/ {2}(?:operators|accounts): .*\n/g, "")
      .replace("portal", "  link_contacts: true\nportal");
    assert.partialDeepStrictEqual(load(contacts, env).signIn, { linksContacts: true, accounts: [] });
  });

  test("a fault turns sign-in off, and nothing else", () => {
    const faults = faultsOf(good, {});
    assert.deepEqual(faults, [
      "inkwell.yaml:4: sign_in.client_secret: the environment variable OIDC_SECRET is not set, and ${OIDC_SECRET} has no default",
    ]);
  });

  test("is reported with all other faults if the service cannot start", () => {
    assert.deepEqual(problemsOf(`listen: { port: x }\n${good}`, {}), [
      'inkwell.yaml:1: listen.port: found "x", expected a port from 0 to 65535 (0: any free one)',
      "inkwell.yaml:5: sign_in.client_secret: the environment variable OIDC_SECRET is not set, and ${OIDC_SECRET} has no default",
    ]);
  });

  const rules = (text: string) => good.replace(/ {2}operators: .*\n/, `  operators:\n${text}\n`);
  const cases: [sentence: string, yaml: string, faults: string[]][] = [
    [
      "an issuer over plain http, which anybody on the network could replace",
      good.replace("https://login", "http://login"),
      [
        'inkwell.yaml:2: sign_in.issuer: found "http://login.example.edu", expected the https URL of the issuer without a query, such as https://login.example.edu (http on this machine only)',
      ],
    ],
    [
      "an issuer with a password, without showing it",
      good.replace("https://login", "https://user:hunter2@login"),
      [
        'inkwell.yaml:2: sign_in.issuer: found "https://...@login.example.edu", expected the https URL of the issuer without a query, such as https://login.example.edu (http on this machine only)',
      ],
    ],
    [
      "the address of the discovery document in place of the issuer",
      good.replace("example.edu\n", "example.edu/.well-known/openid-configuration\n"),
      [
        'inkwell.yaml:2: sign_in.issuer: found "https://login.example.edu/.well-known/openid-configuration", expected the https URL of the issuer without a query, such as https://login.example.edu (http on this machine only)',
      ],
    ],
    [
      "an issuer that is also the one before, whose people would be moved by their addresses",
      good.replace("portal: {}", "  formerly: https://login.example.edu/\nportal: {}"),
      ["inkwell.yaml:7: sign_in.formerly: is the issuer of now; name the one before, or remove it"],
    ],
    [
      "a missing client id",
      good.replace("  client_id: inkwell\n", ""),
      ["inkwell.yaml:1: sign_in.client_id is missing; expected the client id that the issuer has given you"],
    ],
    [
      "a client secret with a space, without showing it",
      good.replace('"${OIDC_SECRET}"', "two words"),
      [
        "inkwell.yaml:4: sign_in.client_secret: found a text of 9 characters (not shown), expected the client secret that the issuer has given you",
      ],
    ],
    [
      "a rule with two conditions",
      rules("    - { group: it, email: ada@x.example, role: owner }"),
      [
        "inkwell.yaml:6: sign_in.operators[0]: found group and email, expected one of group, email and domain",
      ],
    ],
    [
      "a rule without a condition",
      rules("    - { group: it, role: owner }\n    - { role: owner }"),
      ["inkwell.yaml:7: sign_in.operators[1]: found no condition, expected one of group, email and domain"],
    ],
    [
      "an unknown role",
      rules("    - { group: it, role: admin }"),
      [
        'inkwell.yaml:6: sign_in.operators[0].role: found "admin", expected viewer, support, operator or owner',
      ],
    ],
    [
      "a mistyped key of a rule",
      rules("    - { groups: it, role: owner }"),
      [
        "inkwell.yaml:6: sign_in.operators[0]: found no condition, expected one of group, email and domain",
        "inkwell.yaml:6: sign_in.operators[0].groups is not known; did you mean group?",
      ],
    ],
    [
      "a rule that is no map",
      rules("    - it-staff"),
      [
        'inkwell.yaml:6: sign_in.operators[0]: found "it-staff", expected a map with the keys group, email, domain, role',
      ],
    ],
    [
      "rules that are no list",
      rules("    group: it"),
      [
        "inkwell.yaml:5: sign_in.operators: found a map of keys, expected a list of rules: [{ group: it, role: operator }]",
      ],
    ],
    [
      "two rules with one condition, of which the second would never count",
      rules("    - { group: it, role: owner }\n    - { group: it, role: viewer }"),
      ["inkwell.yaml:1: sign_in.operators[1]: group it has a rule already, operators[0]; remove one of them"],
    ],
    [
      "a plan that does not exist",
      good.replace("plan: starter }]", "plan: startre }]"),
      ['inkwell.yaml:6: sign_in.accounts[1].plan: there is no plan "startre"; did you mean starter?'],
    ],
    [
      "a domain with a scheme",
      good.replace("domain: example.edu", 'domain: "https://example.edu"'),
      [
        'inkwell.yaml:6: sign_in.accounts[1].domain: found "https://example.edu", expected a host name such as ops.example, without scheme, port, path or wildcard (IP addresses and localhost are always accepted)',
      ],
    ],
    [
      "accounts without a portal",
      good.replace("portal: {}\n", ""),
      [
        "inkwell.yaml:1: sign_in.accounts: people get their accounts in the portal, which is not configured; add the section portal",
      ],
    ],
    [
      "no rule at all",
      good.replace(/ {2}(operators|accounts): .*\n/g, ""),
      ["inkwell.yaml:1: sign_in: nobody could sign in without a rule; add operators or accounts"],
    ],
    [
      "a period that is none",
      good.replace("portal:", "  lapse: 90 days\nportal:"),
      ['inkwell.yaml:7: sign_in.lapse: found "90 days", expected an ISO 8601 period such as P90D'],
    ],
  ];
  for (const [sentence, yaml, faults] of cases) {
    test(`refuses ${sentence}`, () => {
      assert.deepEqual(faultsOf(yaml, env), faults);
    });
  }

  test("a reload applies it, and another line is no change", () => {
    const before = load(good, env);
    assert.deepEqual(changesBetween(before, load(`listen: {}\n${good}`, env)).settings, []);
    assert.deepEqual(
      changesBetween(before, load(good.replace("starter }]", "starter }]\n  trust_email: true"), env))
        .settings,
      ["sign_in"],
    );
  });
});

describe("portal.keys", () => {
  test("closes the portal to keys", () => {
    assert.equal(load(good, env).portal?.keys, true);
    assert.equal(load(good.replace("portal: {}", "portal: { keys: false }"), env).portal?.keys, false);
  });

  test("leaves a way in", () => {
    assert.deepEqual(problemsOf("portal:\n  keys: false\n"), [
      "inkwell.yaml:2: portal.keys: without the section sign_in, and without portal.url for invitations, people can sign in with keys only; add one of them, or remove portal.keys",
    ]);
    assert.deepEqual(problemsOf("portal:\n  keys: false\n  url: https://ai.example\n"), []);
  });
});

describe("keys of a plan", () => {
  const plan = (keys: string) =>
    `plans: { p: { base: { credits: 1, every: P1D }, overage: { credits: 0, every: P1D }${keys} } }`;
  test("say how many keys people make, and how long they live", () => {
    assert.deepEqual([...load(plan("")).personKeys], [["p", { most: 10, life: null }]]);
    const { personKeys, plans } = load(plan(", keys: { most: 2, life: P180D }"));
    assert.deepEqual(personKeys.get("p"), { most: 2, life: "P180D" });
    assert.ok(!("keys" in (plans.get("p") ?? {})), "no version of the plan has it");
  });

  test("are whole numbers and periods", () => {
    assert.deepEqual(problemsOf(plan(", keys: { most: 501, life: long }")), [
      "inkwell.yaml:1: plans.p.keys.most: found 501, expected a whole number from 0 to 500",
      'inkwell.yaml:1: plans.p.keys.life: found "long", expected an ISO 8601 period such as P90D',
    ]);
  });
});
