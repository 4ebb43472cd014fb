/** The portal with the miniature model. */
import "../portal-chat.test.ts";
import "../portal-keys.test.ts";
