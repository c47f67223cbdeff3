// Casts of arrays, and exponents of arrays.
import { choice, instanceOf, integer, options, real } from "./check.js";
import { call, reads, writes } from "./library.js";

/** Formats, as gs_format numbers them. */
export const FORMATS = /** @type {const} */ (["fp16", "bf16", "e5m2", "e4m3", "e5m2_saturating", "e4m3_saturating"]);
const ROUNDINGS = /** @type {const} */ (["nearest_even", "toward_zero", "stochastic"]);
const CAST_COUNTS = /** @type {const} */ (["exact", "inexact", "underflow", "overflow", "invalid"]);

/** @typedef {(typeof FORMATS)[number]} Format */
/** @typedef {(typeof ROUNDINGS)[number]} Rounding */
/** @typedef {Record<(typeof CAST_COUNTS)[number], number>} CastCounts */
/** @typedef {{ rounding?: Rounding, random?: Uint32Array, counts?: Partial<CastCounts> }} EncodeOptions */

/** @param {unknown} format */
const isWide = (format) => format === "fp16" || format === "bf16";

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
export function encode(format, x, settings = {}) {
  const number = choice(format, "format", FORMATS);
  instanceOf(x, "x", Float32Array);
  const { rounding = "nearest_even", random, counts } = options(settings, "settings", ["rounding", "random", "counts"]);
  const mode = choice(rounding, "rounding", ROUNDINGS);
  if (random !== undefined && instanceOf(random, "random", Uint32Array).length !== x.length) {
    throw new RangeError(`random must have a number for each of ${x.length} elements, not ${random.length}`);
  }
  if (counts !== undefined) instanceOf(counts, "counts", Object);
  const y = isWide(format) ? new Uint16Array(x.length) : new Uint8Array(x.length);
  const counted = new BigUint64Array(CAST_COUNTS.length);
  const name = isWide(format) ? "gs_encode16" : "gs_encode8";
  const drawn = random && reads(random);
  call(name, number, reads(x), writes(y), x.length, mode, drawn, writes(counted));
  if (counts !== undefined) CAST_COUNTS.forEach((key, i) => (counts[key] = Number(counted[i])));
  return y;
}

/**
 * The numbers of patterns, exactly: a Uint16Array of `"fp16"` or `"bf16"`, a Uint8Array of the others.
 * @param {Format} format
 * @param {Uint16Array | Uint8Array} patterns
 */
export function decode(format, patterns) {
  const number = choice(format, "format", FORMATS);
  instanceOf(patterns, `patterns of ${format}`, isWide(format) ? Uint16Array : Uint8Array);
  const y = new Float32Array(patterns.length);
  call(isWide(format) ? "gs_decode16" : "gs_decode8", number, reads(patterns), writes(y), y.length);
  return y;
}

/**
 * Computes x · 2^(toExponent − fromExponent), rounded once, even if that power is far outside the range of f32. It
 * rescales values from `fromExponent` to `toExponent`, which is 0 for a parameter's gradient.
 * @param {Float32Array} x
 * @param {number} fromExponent
 * @param {number} [toExponent]
 */
export function rescale(x, fromExponent, toExponent = 0) {
  const y = new Float32Array(instanceOf(x, "x", Float32Array).length);
  const exponents = [integer(fromExponent, "fromExponent"), integer(toExponent, "toExponent")];
  call("gs_rescale", reads(x), writes(y), y.length, ...exponents);
  return y;
}

/**
 * The largest exponent at which a gradient of magnitude `amax`, measured at the exponent `amaxExponent`, stays below 65504.
 * @param {number} amax
 * @param {number} [amaxExponent]
 */
export function proposeFixed(amax, amaxExponent = 0) {
  const exponent = new Uint32Array(1);
  call("gs_propose_fixed", real(amax, "amax"), integer(amaxExponent, "amaxExponent"), writes(exponent));
  return exponent[0] | 0;
}
