/** The setting `workers`: what it refuses, and what each worker may use. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { applicable, changesBetween } from "../../src/config/changes.ts";
import { shareOf } from "../../src/config/workers.ts";
import { directory, load, refusesEach } from "../fixtures/configuration.ts";

const price = "price: { prompt: 1, completion: 2 }";
const upstream = (more = "") =>
  `database: postgres://u@db.example/inkwell
models:
  big: { engine: upstream, url: "http://a:1/v1", model: m, ${price}${more} }
`;
const embedded = `database: postgres://u@db.example/inkwell
models:
  small: { engine: llama, source: /models/a.gguf, ${price} }
  big: { engine: upstream, url: "http://a:1/v1", model: m, ${price} }
`;

describe("workers", () => {
  test("is 1 by default, on either database and with any model", () => {
    assert.equal(load(undefined).workers, 1);
    assert.equal(load(`${embedded}workers: 1\n`).workers, 1);
    assert.equal(load(`${upstream()}workers: 64\n`).workers, 64);
  });

  refusesEach({
    "workers: 2.5": /^inkwell\.yaml:1: workers: found 2\.5, expected a whole number from 1 to 64$/,
    "workers: 65": /^inkwell\.yaml:1: workers: found 65, expected a whole number from 1 to 64$/,
    "workers: 0": /^inkwell\.yaml:1: workers: found 0, expected a whole number from 1 to 64$/,
    "workers: many": /^inkwell\.yaml:1: workers: found "many", expected a whole number/,
    [`models: { big: { engine: upstream, url: "http://a:1/v1", model: m, ${price} } }\nworkers: 2`]:
      /^inkwell\.yaml:2: workers: 2 processes need PostgreSQL; set database, or workers: 1$/,
    [`${embedded}workers: 2`]:
      /^inkwell\.yaml:5: workers: each of 2 processes would load small; serve it .* as an upstream, or set workers: 1$/,
    [`${upstream(", parallel: 3")}workers: 4`]:
      /^inkwell\.yaml:4: workers: models\.big\.parallel is 3, too few for 4 processes$/,
  });

  test("divides the limits of the service, so that its totals hold", () => {
    const limits =
      "limits: { connections: 100, connections_per_address: 2, upload_bytes: 40000000, queue: 10, refused_bytes_per_minute: 30, refused_milliseconds_per_minute: 31, messages: 7 }\n";
    const config = load(`${upstream(", parallel: 10, reserved: 2")}${limits}workers: 3\n`);
    const part = shareOf(config, config.workers);
    const { connectionsMax, connectionsPerAddressMax, uploadBytesMax, queueMax } = part.limits;
    assert.deepEqual(
      { connectionsMax, connectionsPerAddressMax, uploadBytesMax, queueMax },
      { connectionsMax: 33, connectionsPerAddressMax: 1, uploadBytesMax: 13_333_333, queueMax: 3 },
    );
    assert.deepEqual([part.limits.refusedBytesPerMinute, part.limits.refusedMsPerMinute], [10, 10]);
    assert.equal(part.limits.messagesMax, 7);
    const [model] = part.models;
    assert.ok(model?.engine === "upstream");
    assert.deepEqual([model.parallel, model.reserved], [3, 0]);
  });

  test("leaves room for one body, and each process its own default of connections", () => {
    const config = load(`${upstream()}workers: 64\n`);
    const { uploadBytesMax, bodyBytesMax, connectionsMax } = shareOf(config, 64).limits;
    assert.deepEqual([uploadBytesMax, connectionsMax], [bodyBytesMax, null]);
  });

  test("are not shared by models of a new file that do not suit the workers that run", () => {
    assert.throws(
      () => shareOf(load(`${embedded}workers: 1\n`), 2),
      /^OperatorError: Until a restart, 2 workers run:\n {2}inkwell\.yaml:3: workers: each of 2 processes would load small; .*$/,
    );
    assert.throws(
      () => shareOf(load(`${upstream(", parallel: 3")}workers: 1\n`), 4),
      /\n {2}inkwell\.yaml:3: workers: models\.big\.parallel is 3, too few for 4 processes$/,
    );
    assert.equal(shareOf(load(embedded), 1).models.length, 2);
  });

  test("needs a restart, and keeps its value in a reload", () => {
    const env = { INKWELL_DATA: directory() };
    const running = load(`${upstream()}workers: 2\n`, env);
    const next = load(`${upstream()}workers: 3\n`, env);
    assert.deepEqual(changesBetween(running, next).needsRestart, ["workers"]);
    assert.equal(applicable(running, next).workers, 2);
  });
});
