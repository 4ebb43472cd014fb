/**
 * The portal with the miniature model, jobs and dialogs of both listeners, and pages during a
 * restart.
 */
import "../portal-chat.test.ts";
import "../portal-keys.test.ts";
import "../action-dialogs.test.ts";
import "../jobs.test.ts";
import "../restart.test.ts";
