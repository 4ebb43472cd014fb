/** The portal with the miniature model, and both sets of pages while it restarts. */
import "../portal-chat.test.ts";
import "../portal-keys.test.ts";
import "../restart.test.ts";
