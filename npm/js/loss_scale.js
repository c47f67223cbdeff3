// Loss scales: one number for all gradients.
import { choice, count, instanceOf, integer, options, real, truth } from "./check.js";
import { call, changes, reads, writes } from "./library.js";

const HYSTERESES = /** @type {const} */ (["none", "cumulative", "consecutive"]);

/**
 * Settings of a dynamic loss scale.
 * @typedef {object} DynamicConfig
 * @property {number} initExponent Exponent of the scale in the first step.
 * @property {number} growthExponent Exponent added after `growthInterval` finite steps, which is positive.
 * @property {number} backoffExponent Exponent added after an overflow, which is negative.
 * @property {number} growthInterval Number of consecutive finite steps after which the scale grows.
 * @property {number} minExponent Minimum exponent of the scale.
 * @property {number} maxExponent Maximum exponent of the scale.
 * @property {(typeof HYSTERESES)[number]} hysteresis Overflow that lowers it: each one, the n-th since it last grew (Megatron),
 *   or the n-th without a finite step in between (DeepSpeed's switch).
 * @property {number} hysteresisOverflows Number n of overflows of the hysteresis, at least 1.
 * @property {number} tolerancePpm Minimum share of overflows among the steps since the last change that lowers the scale, in
 *   parts per million.
 * @property {[number, number][]} floor Rising minimum of at most eight steps: numbers of training steps, and the minimum
 *   exponent from each of them on.
 */
/** @typedef {{ minExponent?: number, maxExponent?: number }} Bounds */

/** Bytes of a gs_loss_scale, and of a gs_dynamic_config; steps of its floor. */
const BYTES = 8 * 37;
const CONFIG = 144;
const FLOORS = 8;

/** @param {Bounds} bounds */
const limits = ({ minExponent = -24, maxExponent = 30 }) => [integer(minExponent, "minExponent"), integer(maxExponent, "maxExponent")];

/** A loss scale with its whole state. */
export class LossScale {
  /** The bytes of a gs_loss_scale. */
  #bytes = new Uint8Array(BYTES);

  /**
   * Creates a dynamic scale. Missing settings are those of {@link LossScale.defaultConfig}. Functions of this class create the
   * other kinds.
   * @param {Partial<DynamicConfig>} [config]
   */
  constructor(config = {}) {
    const defaults = LossScale.defaultConfig();
    const all = { ...defaults, ...options(config, "config", Object.keys(defaults)) };
    const bytes = new Uint8Array(CONFIG);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, CONFIG, true);
    view.setInt32(4, integer(all.initExponent, "initExponent"), true);
    view.setInt32(8, integer(all.growthExponent, "growthExponent"), true);
    view.setInt32(12, integer(all.backoffExponent, "backoffExponent"), true);
    view.setUint32(16, count(all.growthInterval, "growthInterval"), true);
    view.setInt32(20, integer(all.minExponent, "minExponent"), true);
    view.setInt32(24, integer(all.maxExponent, "maxExponent"), true);
    view.setUint32(28, choice(all.hysteresis, "hysteresis", HYSTERESES), true);
    view.setUint32(32, count(all.hysteresisOverflows, "hysteresisOverflows"), true);
    view.setUint32(36, count(all.tolerancePpm, "tolerancePpm"), true);
    const floor = instanceOf(all.floor, "floor", Array);
    view.setUint32(40, floor.length, true);
    floor.slice(0, FLOORS).forEach((pair, i) => {
      const [steps, exponent] = instanceOf(pair, `floor ${i}`, Array);
      view.setBigUint64(48 + 8 * i, BigInt(integer(steps, `floor ${i}`, 0, Number.MAX_SAFE_INTEGER)), true);
      view.setInt32(112 + 4 * i, integer(exponent, `floor ${i}`), true);
    });
    call("gs_loss_scale_init_dynamic", writes(this.#bytes), reads(bytes));
  }

  /**
   * Default settings: 2^16, doubled after 2000 consecutive finite steps, halved at each overflow.
   * @returns {DynamicConfig}
   */
  static defaultConfig() {
    const bytes = new Uint8Array(CONFIG);
    call("gs_dynamic_config_init", writes(bytes));
    const view = new DataView(bytes.buffer);
    return {
      initExponent: view.getInt32(4, true),
      growthExponent: view.getInt32(8, true),
      backoffExponent: view.getInt32(12, true),
      growthInterval: view.getUint32(16, true),
      minExponent: view.getInt32(20, true),
      maxExponent: view.getInt32(24, true),
      hysteresis: HYSTERESES[view.getUint32(28, true)],
      hysteresisOverflows: view.getUint32(32, true),
      tolerancePpm: view.getUint32(36, true),
      floor: [],
    };
  }

  /**
   * @param {string} name
   * @param {number[]} numbers
   */
  static #made(name, ...numbers) {
    const made = new LossScale();
    call(name, writes(made.#bytes), ...numbers);
    return made;
  }

  /**
   * A constant: a power of two from 2^-126 to 2^126.
   * @param {number} scale
   */
  static fixed(scale) {
    return LossScale.#made("gs_loss_scale_init_fixed", real(scale, "scale"));
  }

  /**
   * As large as the largest gradient of the last `history` steps (1 to 16) allows, less `margin` exponents.
   * @param {{ history?: number, margin?: number } & Bounds} [config]
   */
  static delayed(config = {}) {
    const { history = 16, margin = 0, ...bounds } = options(config, "config", ["history", "margin", "minExponent", "maxExponent"]);
    return LossScale.#made("gs_loss_scale_init_delayed", count(history, "history"), count(margin, "margin"), ...limits(bounds));
  }

  /**
   * Follows mean and spread of log2 of the largest gradient (LogMax); `ceiling` is the log2 of the overflow threshold.
   * @param {{ meanDecay?: number, spreadDecay?: number, quantile?: number, ceiling?: number } & Bounds} [config]
   */
  static logMax(config = {}) {
    const known = ["meanDecay", "spreadDecay", "quantile", "ceiling", "minExponent", "maxExponent"];
    const all = options(config, "config", known);
    const { meanDecay = 0.99, spreadDecay = 0.999, quantile = 3.09, ceiling = 16, ...bounds } = all;
    const decays = [real(meanDecay, "meanDecay"), real(spreadDecay, "spreadDecay"), real(quantile, "quantile")];
    return LossScale.#made("gs_loss_scale_init_log_max", ...decays, integer(ceiling, "ceiling"), ...limits(bounds));
  }

  /**
   * Grows a little in every step, by 2 in `growthInterval` steps, and is halved at an overflow.
   * @param {{ growthInterval?: number } & Bounds} [config]
   */
  static chainer(config = {}) {
    const { growthInterval = 2000, ...bounds } = options(config, "config", ["growthInterval", "minExponent", "maxExponent"]);
    return LossScale.#made("gs_loss_scale_init_chainer", count(growthInterval, "growthInterval"), ...limits(bounds));
  }

  /** The exponent in force: multiply the loss by 2^exponent. */
  get exponent() {
    const exponent = new Uint32Array(1);
    call("gs_loss_scale_exponent", reads(this.#bytes), writes(exponent));
    return exponent[0] | 0;
  }

  /**
   * Takes the end of a step, once for each, skipped ones included. `foundInf`: some gradient was not finite. `amax` is the
   * largest magnitude of a gradient, measured at the exponent `amaxExponent`; NaN where it is not known.
   * @param {boolean} foundInf
   * @param {number} [amax]
   * @param {number} [amaxExponent]
   */
  update(foundInf, amax = NaN, amaxExponent = 0) {
    const numbers = [truth(foundInf, "foundInf"), real(amax, "amax"), integer(amaxExponent, "amaxExponent")];
    call("gs_loss_scale_update", changes(this.#bytes), ...numbers);
  }

  /** A copy of its bytes: a checkpoint. */
  toBytes() {
    return this.#bytes.slice();
  }

  /**
   * Restores a loss scale from its bytes. Bytes that were modified, or that another version has written, are refused.
   * @param {Uint8Array} bytes
   */
  static fromBytes(bytes) {
    if (instanceOf(bytes, "bytes", Uint8Array).length !== BYTES) {
      throw new RangeError(`a loss scale has ${BYTES} bytes, not ${bytes.length}`);
    }
    const scale = new LossScale();
    scale.#bytes.set(bytes);
    void scale.exponent;
    return scale;
  }
}
