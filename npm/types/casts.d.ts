/**
 * Rounds numbers to a format, and returns their patterns: 16 bits each for `"fp16"` and `"bf16"`, otherwise 8.
 *
 * `round` is `"nearest_even"`, `"toward_zero"` or `"stochastic"`, which needs a random number in `random` for each
 * element. An object in `tally` receives the numbers of elements that kept their value, were rounded, became zero,
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
 * Computes x · 2^(to − from), rounded once, even if that power is far outside the range of f32. It rescales values from
 * the exponent `from` to the exponent `to`, which is 0 for a parameter's gradient.
 * @param {Float32Array} x
 * @param {number} from
 * @param {number} [to]
 */
export function rescale(x: Float32Array, from: number, to?: number): Float32Array<ArrayBuffer>;
/**
 * The largest exponent at which a gradient of magnitude `amax`, seen at the exponent `at`, stays below 65504.
 * @param {number} amax
 * @param {number} [at]
 */
export function proposeFixed(amax: number, at?: number): number;
/** Formats, as gs_format numbers them. */
export const FORMATS: readonly ["fp16", "bf16", "e5m2", "e4m3", "e5m2_saturating", "e4m3_saturating"];
export type Format = (typeof FORMATS)[number];
export type Round = (typeof ROUNDINGS)[number];
export type Tally = Record<(typeof TALLY)[number], number>;
export type EncodeOptions = {
    round?: Round;
    random?: Uint32Array;
    tally?: Partial<Tally>;
};
declare const ROUNDINGS: readonly ["nearest_even", "toward_zero", "stochastic"];
declare const TALLY: readonly ["exact", "inexact", "underflow", "overflow", "invalid"];
export {};
