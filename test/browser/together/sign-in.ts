/** Tests with a service in their own process, and its issuer or mail server. */
import "../roles.test.ts";
import "../sign-in-at-issuer.test.ts";
import "../join-by-mail.test.ts";
