/** Actions on accounts of two plans. The last file changes the plans. */
import "../account-actions.test.ts";
import "../account-keys.test.ts";
import "../configuration.test.ts";
