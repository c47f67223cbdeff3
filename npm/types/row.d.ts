/** Levels of detail of a row, in the order of gs_detail. */
export const DETAILS: readonly ["none", "counts", "histogram", "moments"];
/**
 * The bytes of a row themselves, for the end of a step.
 * @type {(row: Row) => Uint8Array}
 */
export let bytesOf: (row: Row) => Uint8Array;
/** The summary of all values that one store saw. */
export class Row {
    /**
     * Restores a row from its bytes. Bytes that no store can have written are refused.
     * @param {Uint8Array} bytes
     */
    static fromBytes(bytes: Uint8Array): Row;
    /**
     * Creates an empty row for a store at `exponent`, which {@link Site.request} returns, or at 0 to observe values
     * unscaled. `detail` is `"none"`, `"counts"`, `"full"` (with the histogram) or `"moments"` (with sums too). `format`
     * is `"fp16"` or an 8-bit one.
     * @param {RowOptions} [settings]
     */
    constructor(settings?: RowOptions);
    /**
     * Adds values, as the store saw them: times 2^exponent, before they were rounded.
     * @param {Float32Array} u
     */
    observe(u: Float32Array): void;
    /**
     * The whole store of a gradient: values at `fromExponent` times 2^(exponent − fromExponent), added to the row, each rounded once
     * to FP16, nearest even. The row's format is `"fp16"`.
     * @param {Float32Array} v
     * @param {number} [fromExponent]
     */
    store(v: Float32Array, fromExponent?: number): Uint16Array<ArrayBuffer>;
    /**
     * The whole store of a gradient in eight bits, as {@link Row.store} does it: returns bit patterns of the row's format, which
     * is an 8-bit one. A saturating format has its largest number where a value overflows; the overflow counts all the same.
     * @param {Float32Array} v
     * @param {number} [fromExponent]
     */
    store8(v: Float32Array, fromExponent?: number): Uint8Array<ArrayBuffer>;
    /**
     * Adds the statistics of another row: of another micro-batch, call or worker.
     * @param {Row} other
     */
    merge(other: Row): void;
    /** The exponent at which the values are seen. */
    get exponent(): number;
    /**
     * How many values were seen, and of which kinds; the largest finite magnitude.
     * @returns {Counts}
     */
    counts(): Counts;
    /**
     * Which share of the values that are not zero flushes at the row's exponent + exponentDelta.
     * @param {number} exponentDelta
     */
    flushedAt(exponentDelta: number): number;
    /**
     * Which share of the sum of magnitudes flushes at the row's exponent + exponentDelta, within a factor of 2.
     * @param {number} exponentDelta
     */
    lostAt(exponentDelta: number): number;
    /** A copy of its bytes, a gs_row: for another worker, a file, a device that fills the words itself. */
    toBytes(): Uint8Array<ArrayBuffer>;
    #private;
}
export type Flush = (typeof FLUSHES)[number];
export type Detail = (typeof DETAILS)[number];
/**
 * Counters of a row.
 */
export type Counts = {
    /**
     * Values seen.
     */
    count: number;
    /**
     * Zeros before the store.
     */
    zeros: number;
    /**
     * Infinities before the store.
     */
    infinite: number;
    /**
     * NaN before the store.
     */
    nan: number;
    /**
     * Values that were not zero and became zero.
     */
    flushed: number;
    /**
     * Finite values too large for the store.
     */
    overflowed: number;
    /**
     * Subnormal results.
     */
    subnormal: number;
    /**
     * Largest finite magnitude, 0 if there is none.
     */
    amax: number;
    /**
     * The exponent at which the values were seen.
     */
    exponent: number;
};
export type RowOptions = {
    exponent?: number;
    detail?: Detail;
    format?: import("./casts.js").Format;
    flush?: Flush;
};
/** Flush rules: results of a store below the smallest normal number, in the order of gs_flush. */
declare const FLUSHES: readonly ["nearest", "toward_zero", "before_rounding", "after_rounding", "after_unbounded_rounding"];
export {};
