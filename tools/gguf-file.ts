/**
 * Writes files in GGUF version 3, with metadata and matrices in two quantized types of ggml. It
 * supports only what make-miniature.ts needs. The same input gives the same bytes.
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */

/** A matrix in the order of llama.cpp: `rows` outputs, each with `columns` inputs. */
export class Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;

  constructor(rows: number, columns: number) {
    this.rows = rows;
    this.columns = columns;
    this.values = new Float32Array(rows * columns);
  }

  set(row: number, column: number, value: number): void {
    this.values[row * this.columns + column] = value;
  }
}

const tensorTypes = { f32: 0, q4_0: 2, q8_0: 8 } as const;

export interface Tensor {
  name: string;
  /** The innermost dimension comes first. */
  shape: number[];
  type: keyof typeof tensorTypes;
  data: Buffer;
}

/** Rounds to the nearest half-precision number, as ggml does for the scale of a block. */
function halfOf(value: number): number {
  const scratch = new DataView(new ArrayBuffer(4));
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 127 + 15;
  if (value === 0) return sign;
  if (exponent <= 0 || exponent >= 31)
    throw new Error(`${value} does not fit a normal half-precision number`);
  // A carry out of the mantissa correctly increments the exponent.
  return sign | ((((exponent << 23) | (bits & 0x7fffff)) + 0x1000) >>> 13);
}

function blocksOf(matrix: Matrix): Float32Array[] {
  if (matrix.columns % 32 !== 0)
    throw new Error(`a row of ${matrix.columns} is not a whole number of blocks`);
  return Array.from({ length: matrix.values.length / 32 }, (_, i) =>
    matrix.values.subarray(i * 32, i * 32 + 32),
  );
}

/**
 * Exact for one-hot blocks and blocks of one repeated value. No other blocks are stored this way.
 */
export function q4(matrix: Matrix): Buffer {
  const blocks = blocksOf(matrix).map((block) => {
    const peak = block.reduce((best, value) => (Math.abs(value) > Math.abs(best) ? value : best), 0);
    const bytes = Buffer.alloc(18);
    bytes.writeUInt16LE(halfOf(peak / -8), 0);
    const quants = [...block].map((value) =>
      peak === 0 ? 8 : Math.min(15, Math.round((value * -8) / peak) + 8),
    );
    for (let i = 0; i < 16; i++) bytes.writeUInt8(at(quants, i) | (at(quants, i + 16) << 4), 2 + i);
    return bytes;
  });
  return Buffer.concat(blocks);
}

export function q8(matrix: Matrix): Buffer {
  const blocks = blocksOf(matrix).map((block) => {
    const peak = block.reduce((best, value) => Math.max(best, Math.abs(value)), 0);
    const bytes = Buffer.alloc(34);
    bytes.writeUInt16LE(halfOf(peak / 127), 0);
    block.forEach((value, i) => {
      bytes.writeInt8(peak === 0 ? 0 : Math.round((value * 127) / peak), 2 + i);
    });
    return bytes;
  });
  return Buffer.concat(blocks);
}

export function f32(values: readonly number[]): Buffer {
  return Buffer.from(new Uint8Array(Float32Array.from(values).buffer));
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function stringBytes(value: string): Buffer {
  const bytes = Buffer.from(value, "utf8");
  return Buffer.concat([u64(bytes.length), bytes]);
}

const metaTypes = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 } as const;

export const meta = {
  u32: (value: number) => Buffer.concat([u32(metaTypes.u32), u32(value)]),
  f32: (value: number) => Buffer.concat([u32(metaTypes.f32), f32([value])]),
  bool: (value: boolean) => Buffer.concat([u32(metaTypes.bool), Buffer.from([value ? 1 : 0])]),
  text: (value: string) => Buffer.concat([u32(metaTypes.string), stringBytes(value)]),
  texts: (values: readonly string[]) =>
    Buffer.concat([
      u32(metaTypes.array),
      u32(metaTypes.string),
      u64(values.length),
      ...values.map(stringBytes),
    ]),
  ints: (values: readonly number[]) =>
    Buffer.concat([u32(metaTypes.array), u32(metaTypes.i32), u64(values.length), ...values.map(u32)]),
};

const alignment = 32;

export function gguf(metadata: Record<string, Buffer>, tensors: readonly Tensor[]): Buffer {
  const entries = Object.entries(metadata);
  const header = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(entries.length)];
  for (const [key, value] of entries) header.push(stringBytes(key), value);
  let offset = 0;
  for (const { name, shape, type, data } of tensors) {
    header.push(stringBytes(name), u32(shape.length), ...shape.map(u64), u32(tensorTypes[type]), u64(offset));
    offset += roundUp(data.length, alignment);
  }
  const padded = (bytes: Buffer): Buffer => Buffer.concat([bytes], roundUp(bytes.length, alignment));
  return Buffer.concat([padded(Buffer.concat(header)), ...tensors.map((tensor) => padded(tensor.data))]);
}

export function at<T>(values: ArrayLike<T>, index: number): T {
  const value = values[index];
  if (value === undefined) throw new Error(`nothing at ${index}`);
  return value;
}

export function roundUp(value: number, multiple: number): number {
  return Math.ceil(value / multiple) * multiple;
}
