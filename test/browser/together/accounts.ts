/**
 * Actions on accounts of two plans. The log of changes comes first, while it has no others. The
 * last file changes the plans.
 */
import "../change-log.test.ts";
import "../account-actions.test.ts";
import "../account-keys.test.ts";
import "../configuration.test.ts";
