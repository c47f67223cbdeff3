// Rows of statistics.
import { FORMATS } from "./casts.js";
import { choice, instanceOf, integer, options } from "./check.js";
import { call, changes, reads, writes } from "./library.js";

/** Flush rules: results of a store below the smallest normal number, in the order of gs_flush. */
const FLUSHES = /** @type {const} */ ([
  "nearest",
  "toward_zero",
  "before_rounding",
  "after_rounding",
  "after_unbounded_rounding",
]);
/** Levels of detail of a row, in the order of gs_detail. */
export const DETAILS = /** @type {const} */ (["none", "counts", "histogram", "moments"]);
/** @typedef {(typeof FLUSHES)[number]} Flush */
/** @typedef {(typeof DETAILS)[number]} Detail */
/**
 * Counters of a row.
 * @typedef {object} Counts
 * @property {number} count Values seen.
 * @property {number} zeros Zeros before the store.
 * @property {number} infinite Infinities before the store.
 * @property {number} nan NaN before the store.
 * @property {number} flushed Values that were not zero and became zero.
 * @property {number} overflowed Finite values too large for the store.
 * @property {number} subnormal Subnormal results.
 * @property {number} amax Largest finite magnitude, 0 if there is none.
 * @property {number} exponent The exponent at which the values were seen.
 */
/** @typedef {{ exponent?: number, detail?: Detail, format?: import("./casts.js").Format, flush?: Flush }} RowOptions */

/** Bytes of a row: its header, and 280 words. */
const BYTES = 4 * (4 + 280);

/**
 * The bytes of a row themselves, for the end of a step.
 * @type {(row: Row) => Uint8Array}
 */
export let bytesOf;

/** The summary of all values that one store saw. */
export class Row {
  /** The bytes of a gs_row. */
  #bytes = new Uint8Array(BYTES);

  static {
    bytesOf = (row) => row.#bytes;
  }

  /**
   * Creates an empty row for a store at `exponent`, which {@link Site.request} returns, or at 0 to observe values
   * unscaled. `detail` is `"none"`, `"counts"`, `"full"` (with the histogram) or `"moments"` (with sums too). `format`
   * is `"fp16"` or an 8-bit one.
   * @param {RowOptions} [settings]
   */
  constructor(settings = {}) {
    const known = ["exponent", "detail", "format", "flush"];
    const { exponent = 0, detail = "histogram", format = "fp16", flush = "nearest" } = options(settings, "settings", known);
    const numbers = [choice(format, "format", FORMATS), choice(flush, "flush", FLUSHES)];
    const level = choice(detail, "detail", DETAILS);
    call("gs_row_init", writes(this.#bytes), ...numbers, integer(exponent, "exponent"), level);
  }

  /**
   * Adds values, as the store saw them: times 2^exponent, before they were rounded.
   * @param {Float32Array} u
   */
  observe(u) {
    call("gs_row_observe", changes(this.#bytes), reads(instanceOf(u, "u", Float32Array)), u.length);
  }

  /**
   * The whole store of a gradient: values at `fromExponent` times 2^(exponent − fromExponent), added to the row, each rounded once
   * to FP16, nearest even. The row's format is `"fp16"`.
   * @param {Float32Array} v
   * @param {number} [fromExponent]
   */
  store(v, fromExponent = 0) {
    const y = new Uint16Array(instanceOf(v, "v", Float32Array).length);
    call("gs_npm_store_fp16", changes(this.#bytes), reads(v), integer(fromExponent, "fromExponent"), writes(y), y.length);
    return y;
  }

  /**
   * The whole store of a gradient in eight bits, as {@link Row.store} does it: returns bit patterns of the row's format, which
   * is an 8-bit one. A saturating format has its largest number where a value overflows; the overflow counts all the same.
   * @param {Float32Array} v
   * @param {number} [fromExponent]
   */
  store8(v, fromExponent = 0) {
    const y = new Uint8Array(instanceOf(v, "v", Float32Array).length);
    call("gs_row_store8", changes(this.#bytes), reads(v), integer(fromExponent, "fromExponent"), writes(y), y.length);
    return y;
  }

  /**
   * Adds the statistics of another row: of another micro-batch, call or worker.
   * @param {Row} other
   */
  merge(other) {
    call("gs_row_merge", changes(this.#bytes), reads(instanceOf(other, "other", Row).#bytes));
  }

  /** The exponent at which the values are seen. */
  get exponent() {
    return new DataView(this.#bytes.buffer).getInt32(12, true);
  }

  /**
   * How many values were seen, and of which kinds; the largest finite magnitude.
   * @returns {Counts}
   */
  counts() {
    const bytes = new Uint8Array(64);
    call("gs_row_counts", reads(this.#bytes), writes(bytes));
    const view = new DataView(bytes.buffer);
    /** @param {number} at */
    const wide = (at) => view.getUint32(at, true) + 2 ** 32 * view.getUint32(at + 4, true);
    return {
      count: wide(0),
      zeros: wide(8),
      infinite: wide(16),
      nan: wide(24),
      flushed: wide(32),
      overflowed: wide(40),
      subnormal: wide(48),
      amax: view.getFloat32(56, true),
      exponent: view.getInt32(60, true),
    };
  }

  /**
   * Which share of the values that are not zero flushes at the row's exponent + exponentDelta.
   * @param {number} exponentDelta
   */
  flushedAt(exponentDelta) {
    return this.#share("gs_row_flushed_at", exponentDelta);
  }

  /**
   * Which share of the sum of magnitudes flushes at the row's exponent + exponentDelta, within a factor of 2.
   * @param {number} exponentDelta
   */
  lostAt(exponentDelta) {
    return this.#share("gs_row_lost_at", exponentDelta);
  }

  /**
   * @param {string} name
   * @param {number} exponentDelta
   */
  #share(name, exponentDelta) {
    const bytes = new Uint8Array(8);
    call(name, reads(this.#bytes), integer(exponentDelta, "exponentDelta"), writes(bytes));
    return new DataView(bytes.buffer).getFloat64(0, true);
  }

  /** A copy of its bytes, a gs_row: for another worker, a file, a device that fills the words itself. */
  toBytes() {
    return this.#bytes.slice();
  }

  /**
   * Restores a row from its bytes. Bytes that no store can have written are refused.
   * @param {Uint8Array} bytes
   */
  static fromBytes(bytes) {
    if (instanceOf(bytes, "bytes", Uint8Array).length !== BYTES) {
      throw new RangeError(`a row has ${BYTES} bytes, not ${bytes.length}`);
    }
    const row = new Row();
    row.#bytes.set(bytes);
    row.counts();
    return row;
  }
}
