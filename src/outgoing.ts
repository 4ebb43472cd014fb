/**
 * Connections to other servers are HTTP/1.1. If one of several streams of an HTTP/2 connection is
 * cut, Node 26.10 can write for ever (in `nghttp2_session_mem_send`), and the process does nothing
 * else.
 */
import { Agent, setGlobalDispatcher } from "undici";

/** Options of every dispatcher. */
export const outgoing = { allowH2: false };

// That of `fetch`.
setGlobalDispatcher(new Agent(outgoing));
