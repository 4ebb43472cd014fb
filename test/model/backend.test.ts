/** Batches as llama.cpp gets them, over a native context that records calls. No model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type BatchEntry, NativeBackend } from "../../src/engines/llama/decode/native-backend.ts";
import { ThreadGovernor } from "../../src/engines/llama/decode/thread-governor.ts";

/** Puts the logits of each sampled token at its position in the batch, as llama.cpp does. */
function recordingBackend(governor: ThreadGovernor | null = null) {
  const sequences: number[] = [];
  const threads: number[] = [];
  let tokensAdded = 0;
  const unused = (): never => assert.fail("not called by decode");
  const context = {
    initBatch: () => {},
    addToBatch: (sequence: number, _: number, tokens: Uint32Array, logits: Uint32Array) => {
      sequences.push(sequence);
      const positions = logits.map((index) => tokensAdded + index);
      tokensAdded += tokens.length;
      return positions;
    },
    decodeBatch: async () => {},
    setThreads: (count: number) => threads.push(count),
    sampleToken: unused,
    disposeSequence: unused,
    removeTokenCellsFromSequence: unused,
    getSequenceKvCacheMinPosition: unused,
    restoreCheckpoint: unused,
  };
  class Sampler {
    applyConfig(): void {}
    dispose(): void {}
  }
  class Checkpoint {
    readonly size = 0;
    readonly maxPos = 0;
    init = unused;
    dispose(): void {}
  }
  const backend = new NativeBackend({ context, Sampler, Checkpoint, model: null }, 64, governor);
  return { sequences, threads, backend };
}

function entry(sequence: number, tokens: number, sample: boolean, position = 0): BatchEntry {
  return { sequence, position, tokens: new Uint32Array(tokens), sample };
}

test("a batch has its sequences in ascending order, so that llama.cpp evaluates them in one pass", async () => {
  const { backend, sequences } = recordingBackend();
  const logits = await backend.decode([entry(2, 1, true), entry(0, 3, true), entry(1, 2, false)], false);
  assert.deepEqual(sequences, [0, 1, 2]);
  assert.deepEqual(logits, [5, 2, -1]);
});

test("a repeatable token gets all cores until its attention would be split among threads", async () => {
  /** Gives all cores to every decode that may have them. */
  class Generous extends ThreadGovernor {
    override choose(_tokens: number, fixed: boolean): number {
      return fixed ? 1 : 2;
    }
  }
  const { backend, threads } = recordingBackend(new Generous(1, 2));
  await backend.decode([entry(0, 1, true, 255)], true);
  await backend.decode([entry(0, 1, true, 256)], true);
  await backend.decode([entry(0, 1, true, 256)], false);
  await backend.decode([entry(0, 2, true, 256)], true);
  assert.deepEqual(threads, [2, 1, 2, 2]);
});
