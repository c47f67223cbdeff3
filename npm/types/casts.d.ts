/**
 * Rounds numbers to a format, and returns their patterns: 16 bits each for `"fp16"` and `"bf16"`, otherwise 8.
 *
 * `rounding` is `"nearest_even"`, `"toward_zero"` or `"stochastic"`, which needs a random number in `random` for each
 * element. An object in `counts` receives the numbers of elements that kept their value, were rounded, became zero,
 * became too large, or were invalid.
 * @param {Format} format
 * @param {Float32Array} x
 * @param {EncodeOptions} [settings]
 * @returns {Uint16Array | Uint8Array}
 */
export function encode(format: Format, x: Float32Array, settings?: EncodeOptions): Uint16Array | Uint8Array;
/**
 * The numbers of patterns, exactly: a Uint16Array of `"fp16"` or `"bf16"`, a Uint8Array of the others.
 * @param {Format} format
 * @param {Uint16Array | Uint8Array} patterns
 */
export function decode(format: Format, patterns: Uint16Array | Uint8Array): Float32Array<ArrayBuffer>;
/**
 * Computes x · 2^(toExponent − fromExponent), rounded once, even if that power is far outside the range of f32. It
 * rescales values from `fromExponent` to `toExponent`, which is 0 for a parameter's gradient.
 * @param {Float32Array} x
 * @param {number} fromExponent
 * @param {number} [toExponent]
 */
export function rescale(x: Float32Array, fromExponent: number, toExponent?: number): Float32Array<ArrayBuffer>;
/**
 * The largest exponent at which a gradient of magnitude `amax`, measured at the exponent `amaxExponent`, stays below 65504.
 * @param {number} amax
 * @param {number} [amaxExponent]
 */
export function proposeFixed(amax: number, amaxExponent?: number): number;
/** Formats, as gs_format numbers them. */
export const FORMATS: readonly ["fp16", "bf16", "e5m2", "e4m3", "e5m2_saturating", "e4m3_saturating"];
export type Format = (typeof FORMATS)[number];
export type Rounding = (typeof ROUNDINGS)[number];
export type CastCounts = Record<(typeof CAST_COUNTS)[number], number>;
export type EncodeOptions = {
    rounding?: Rounding;
    random?: Uint32Array;
    counts?: Partial<CastCounts>;
};
declare const ROUNDINGS: readonly ["nearest_even", "toward_zero", "stochastic"];
declare const CAST_COUNTS: readonly ["exact", "inexact", "underflow", "overflow", "invalid"];
export {};
