/**
 * Console and portal with the miniature model: the first hour comes first, because it needs a new
 * service, and a restart last.
 */
import "../first-hour.test.ts";
import "../links.test.ts";
import "../invitations.test.ts";
import "../many-accounts.test.ts";
import "../action-dialogs.test.ts";
import "../jobs.test.ts";
import "../restart.test.ts";
