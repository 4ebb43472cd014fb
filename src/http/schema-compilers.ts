/** Compilers for both kinds of servers, so that Fastify does not load its own, with Ajv. */

function unused(): never {
  throw new Error("routes with schemas have a compiler of their own");
}

export const schemaController = { compilersFactory: { buildValidator: unused, buildSerializer: unused } };
