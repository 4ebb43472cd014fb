/** The portal with the miniature model, and with plans of which little is left. */
import "../portal-chat.test.ts";
import "../portal-keys.test.ts";
import "../portal-pages.test.ts";
