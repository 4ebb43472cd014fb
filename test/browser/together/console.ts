/** Pages of the console with the miniature model. Tests that need a new service come first. */
import "../live.test.ts";
import "../navigation.test.ts";
import "../sign-in.test.ts";
import "../running-requests.test.ts";
import "../forms.test.ts";
