/** The application that the operator listener and the portal share. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createApiApp } from "../../src/http/api/app.ts";
import { limits } from "../../src/limits/limits.ts";

test("the headers of a request have the time of the table of limits, as on the public listener", async () => {
  const app = createApiApp();
  assert.equal(app.server.headersTimeout, limits.headers.most);
  await app.close();
});
