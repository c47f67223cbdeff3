// Casts of arrays, and exponents of arrays.
import { choice, instanceOf, integer, options, real } from "./check.js";
import { call, reads, writes } from "./library.js";

/** Formats, as gs_format numbers them. */
export const FORMATS = /** @type {const} */ (["fp16", "bf16", "e5m2", "e4m3", "e5m2_saturating", "e4m3_saturating"]);
const ROUNDINGS = /** @type {const} */ (["nearest_even", "toward_zero", "stochastic"]);
const TALLY = /** @type {const} */ (["exact", "inexact", "underflow", "overflow", "invalid"]);

/** @typedef {(typeof FORMATS)[number]} Format */
/** @typedef {(typeof ROUNDINGS)[number]} Round */
/** @typedef {Record<(typeof TALLY)[number], number>} Tally */
/** @typedef {{ round?: Round, random?: Uint32Array, tally?: Partial<Tally> }} EncodeOptions */

/** @param {unknown} format */
const isWide = (format) => format === "fp16" || format === "bf16";

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
export function encode(format, x, settings = {}) {
  const number = choice(format, "format", FORMATS);
  instanceOf(x, "x", Float32Array);
  const { round = "nearest_even", random, tally } = options(settings, "settings", ["round", "random", "tally"]);
  const rounding = choice(round, "round", ROUNDINGS);
  if (random !== undefined && instanceOf(random, "random", Uint32Array).length !== x.length) {
    throw new RangeError(`random must have a number for each of ${x.length} elements, not ${random.length}`);
  }
  if (tally !== undefined) instanceOf(tally, "tally", Object);
  const y = isWide(format) ? new Uint16Array(x.length) : new Uint8Array(x.length);
  const counted = new BigUint64Array(TALLY.length);
  const name = isWide(format) ? "gs_encode16" : "gs_encode8";
  const drawn = random && reads(random);
  call(name, number, reads(x), writes(y), x.length, rounding, drawn, writes(counted));
  if (tally !== undefined) TALLY.forEach((key, i) => (tally[key] = Number(counted[i])));
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
 * Computes x · 2^(to − from), rounded once, even if that power is far outside the range of f32. It rescales values from
 * the exponent `from` to the exponent `to`, which is 0 for a parameter's gradient.
 * @param {Float32Array} x
 * @param {number} from
 * @param {number} [to]
 */
export function rescale(x, from, to = 0) {
  const y = new Float32Array(instanceOf(x, "x", Float32Array).length);
  call("gs_rescale", reads(x), writes(y), y.length, integer(from, "from"), integer(to, "to"));
  return y;
}

/**
 * The largest exponent at which a gradient of magnitude `amax`, seen at the exponent `at`, stays below 65504.
 * @param {number} amax
 * @param {number} [at]
 */
export function proposeFixed(amax, at = 0) {
  const exponent = new Uint32Array(1);
  call("gs_propose_fixed", real(amax, "amax"), integer(at, "at"), writes(exponent));
  return exponent[0] | 0;
}
