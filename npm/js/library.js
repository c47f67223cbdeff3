// The WebAssembly module: its instance, calls with their memory, and errors. It keeps no state: rows, sites and loss
// scales are bytes in JavaScript, which are copied for each call.

/** The version of the structures whose layout this package knows: GS_ABI_VERSION of gradscale.h. */
const VERSION = 1;

/** Names of the statuses of gradscale.h, by their numbers. */
const STATUSES = /** @type {const} */ ([
  "GS_OK",
  "GS_ERROR_POINTER",
  "GS_ERROR_LENGTH",
  "GS_ERROR_OVERLAP",
  "GS_ERROR_VERSION",
  "GS_ERROR_CORRUPTED",
  "GS_ERROR_ENUM",
  "GS_ERROR_FORMAT",
  "GS_ERROR_RANDOM",
  "GS_ERROR_ROW",
  "GS_ERROR_MERGE",
  "GS_ERROR_DETAIL",
  "GS_ERROR_NO_DECISION",
  "GS_ERROR_GAMMA",
  "GS_ERROR_WINDOW",
  "GS_ERROR_HEADROOM",
  "GS_ERROR_INTERVAL",
  "GS_ERROR_OUTLIERS",
  "GS_ERROR_SCALE",
  "GS_ERROR_BOUNDS",
  "GS_ERROR_INIT",
  "GS_ERROR_FACTOR",
  "GS_ERROR_TOLERANCE",
  "GS_ERROR_FLOOR",
  "GS_ERROR_DECAY",
  "GS_ERROR_HISTORY",
  "GS_ERROR_OTHER",
]);

/** @typedef {(typeof STATUSES)[number]} Status */

/** Error of the library: a status of gradscale.h other than GS_OK, with its sentence. Nothing has changed then. */
export class GradscaleError extends Error {
  /**
   * @param {Status} status
   * @param {string} text
   */
  constructor(status, text) {
    super(text);
    this.name = "GradscaleError";
    /** The name of the status. */
    this.status = status;
  }
}

/** @typedef {Float32Array | Uint32Array | Uint16Array | Uint8Array | BigUint64Array} Numbers */
/** @typedef {{ numbers: Numbers, in: boolean, out: boolean }} Span */

/**
 * Input of a call.
 * @param {Numbers} numbers
 * @returns {Span}
 */
export const reads = (numbers) => ({ numbers, in: true, out: false });

/**
 * Output of a call.
 * @param {Numbers} numbers
 * @returns {Span}
 */
export const writes = (numbers) => ({ numbers, in: false, out: true });

/**
 * Memory that a call reads and writes.
 * @param {Numbers} numbers
 * @returns {Span}
 */
export const changes = (numbers) => ({ numbers, in: true, out: true });

/** @typedef {(...numbers: number[]) => number} Exported */

/** @type {WebAssembly.Module | undefined} */
let module;
/** @type {{ memory: WebAssembly.Memory, functions: Record<string, Exported>, bytes: Uint8Array } | undefined} */
let running;

/**
 * Begins with a module of this package.
 * @param {WebAssembly.Module} compiled
 */
export function start(compiled) {
  module = compiled;
  running = undefined;
  if (instance().functions.gs_npm_version() !== VERSION) {
    throw new GradscaleError("GS_ERROR_VERSION", "the WebAssembly file is of another version than this package; install both together");
  }
}

/** The instance in use; a new one after one that failed. */
function instance() {
  if (running) return running;
  if (!module) throw new Error("gradscale is not loaded; import it by the name of the package");
  const { memory, ...functions } = new WebAssembly.Instance(module).exports;
  running = {
    memory: /** @type {WebAssembly.Memory} */ (memory),
    functions: /** @type {Record<string, Exported>} */ (/** @type {unknown} */ (functions)),
    bytes: new Uint8Array(),
  };
  return running;
}

/** The bytes of the memory; one that has grown has another buffer, and the old one no bytes. */
function inside() {
  const one = instance();
  if (one.bytes.byteLength === 0) one.bytes = new Uint8Array(one.memory.buffer);
  return one.bytes;
}

/**
 * Calls a function with numbers and arrays (`undefined`: NULL), and returns its status. Outputs are written only if
 * that is GS_OK.
 * @param {string} name
 * @param {(number | Span | undefined)[]} given
 * @returns {Status}
 */
export function status(name, given) {
  let bytes = 0;
  for (const one of given) if (typeof one === "object") bytes += room(one);
  try {
    const { functions } = instance();
    // More than 32 bits of memory there never are.
    const base = bytes < 2 ** 32 ? functions.gs_npm_reserve(bytes) >>> 0 : 0;
    if (base === 0) throw new RangeError(`gradscale: no memory for ${bytes} bytes`);
    const before = inside();
    let at = base;
    const values = [];
    for (const one of given) {
      if (typeof one !== "object") {
        values.push(one ?? 0);
        continue;
      }
      values.push(at);
      if (one.in) before.set(outside(one), at);
      at += room(one);
    }
    const answer = STATUSES[functions[name](...values)];
    if (answer !== "GS_OK") return answer;
    const after = inside();
    at = base;
    for (const one of given) {
      if (typeof one !== "object") continue;
      if (one.out) outside(one).set(after.subarray(at, at + one.numbers.byteLength));
      at += room(one);
    }
    return answer;
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    // It has run out of memory during a call, so the next call gets a new instance.
    running = undefined;
    throw new GradscaleError("GS_ERROR_OTHER", `${name} failed (${error.message}): out of memory, or a bug in gradscale`);
  }
}

/**
 * Calls a function as `status` does, and throws an error if the status is not GS_OK.
 * @param {string} name
 * @param {(number | Span | undefined)[]} given
 */
export function call(name, ...given) {
  const answer = status(name, given);
  if (answer !== "GS_OK") throw refused(answer);
}

/**
 * The error of a status, with the library's sentence.
 * @param {Status} answer
 */
export function refused(answer) {
  const start = instance().functions.gs_status_string(STATUSES.indexOf(answer)) >>> 0;
  const bytes = inside();
  return new GradscaleError(answer, new TextDecoder().decode(bytes.slice(start, bytes.indexOf(0, start))));
}

/** @param {Span} span */
const room = (span) => Math.ceil(span.numbers.byteLength / 16) * 16;

/** @param {Span} span */
function outside({ numbers }) {
  if (numbers instanceof Uint8Array) return numbers;
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
}

/** Vector instructions that the kernels use: `"SIMD128"`, or `"portable"` if the engine has none. */
export function instructionSet() {
  return instance().functions.gs_npm_simd() === 1 ? "SIMD128" : "portable";
}

/** Returns true if this engine has SIMD128, which it proves by accepting a module with such an instruction. */
export function hasSimd() {
  // (module (func (result v128) i32.const 0 i8x16.splat))
  const tiny = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];
  return WebAssembly.validate(new Uint8Array(tiny));
}
