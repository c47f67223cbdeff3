// Sites: the exponent of one gradient.
import { FORMATS } from "./casts.js";
import { choice, count, instanceOf, integer, options, real } from "./check.js";
import { call, changes, reads, refused, status, writes } from "./library.js";
import { DETAILS, Row, bytesOf as bytesOfRow } from "./row.js";

const STORE_FORMATS = /** @type {const} */ (["fp16", "e5m2", "e4m3"]);
const CALLS = /** @type {const} */ (["one", "several"]);
const HISTORIES = /** @type {const} */ (["none", "min", "ring"]);
const LIMITS = /** @type {const} */ (["threshold", "normal_range", "overflow", "range", "one"]);
const TRIGGERS = /** @type {const} */ (["first", "interval", "overflow", "after_skip", "repeat"]);
const SITE_OUTCOMES = /** @type {const} */ (["stepped", "skipped", "skipped_downstream", "rolled_back"]);

/** @typedef {(typeof SITE_OUTCOMES)[number]} SiteOutcome */
/**
 * Settings of a site's decisions.
 * @typedef {object} SiteConfig
 * @property {number} interval Number of steps from one decision to the next, at least 1.
 * @property {(typeof CALLS)[number]} calls Number of times that the site's store runs in one step.
 * @property {(typeof HISTORIES)[number]} history Influence of earlier rows: none, the lowest ceiling of the
 *   last 16, or all of these.
 * @property {number} gamma Maximum share of the values that may flush, 1e-6 to 1.
 * @property {number} window Exponents above the threshold that the rule goes if there is enough range: 0 to 30.
 * @property {number} headroom Headroom above the largest value in bits: 2 to 30.
 * @property {number} outliers Batches more than this number of exponents above the history are skipped: 8 to 100, or
 *   0 for no limit.
 * @property {(typeof STORE_FORMATS)[number]} format Format of the store, which the site's rows must have.
 */
/**
 * Instructions of a site for the coming step.
 * @typedef {object} Request
 * @property {boolean} decidesInStep Observe the f32 values first ({@link Row.observe}), and decide ({@link Site.decide}).
 * @property {(typeof DETAILS)[number]} detail Level of detail of the row.
 * @property {boolean} hasExponent True if the site has an exponent.
 * @property {number} exponent Exponent in force, 0 before the first decision.
 */
/**
 * Decision of a site.
 * @typedef {object} Decision
 * @property {number} exponent Exponent that the site uses since this decision.
 * @property {number} flushedPredicted Predicted share of the values that will flush; NaN without a prediction.
 * @property {number} exponentDelta Decided exponent relative to that of the row.
 * @property {(typeof LIMITS)[number]} limitedBy Constraint that determined the exponent.
 * @property {(typeof TRIGGERS)[number]} trigger Event that caused the decision.
 */

/**
 * Number of a format of stores in gs_format.
 * @param {SiteConfig["format"]} format
 */
const formatNumber = (format) => {
  choice(format, "format", STORE_FORMATS);
  return choice(format, "format", FORMATS);
};

/** Bytes of a gs_site, and of a gs_site_config. */
const BYTES = 8 * 46;
const CONFIG = 40;

/**
 * The bytes of a site themselves, for the end of a step.
 * @type {(site: Site) => Uint8Array}
 */
export let bytesOf;

/** The exponent of one gradient: kept from step to step. */
export class Site {
  /** The bytes of a gs_site. */
  #bytes = new Uint8Array(BYTES);

  static {
    bytesOf = (site) => site.#bytes;
  }

  /**
   * Creates a site without an exponent. Missing settings are those of {@link Site.defaultConfig} for the format.
   * @param {Partial<SiteConfig>} [config]
   */
  constructor(config = {}) {
    const { format = "fp16" } = options(config, "config", Object.keys(Site.defaultConfig()));
    const defaults = Site.defaultConfig(format);
    const all = { ...defaults, ...config };
    const bytes = new Uint8Array(CONFIG);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, CONFIG, true);
    view.setUint32(4, count(all.interval, "interval"), true);
    view.setUint32(8, choice(all.calls, "calls", CALLS), true);
    view.setUint32(12, choice(all.history, "history", HISTORIES), true);
    view.setFloat64(16, real(all.gamma, "gamma"), true);
    view.setInt32(24, integer(all.window, "window"), true);
    view.setInt32(28, integer(all.headroom, "headroom"), true);
    view.setInt32(32, integer(all.outliers, "outliers"), true);
    view.setUint32(36, formatNumber(format), true);
    call("gs_site_init", writes(this.#bytes), reads(bytes));
  }

  /**
   * Default settings for a format of stores: every 10 steps, with the history of 16 rows, at most one value in a thousand
   * flushed.
   * @param {SiteConfig["format"]} [format]
   * @returns {SiteConfig}
   */
  static defaultConfig(format = "fp16") {
    const bytes = new Uint8Array(CONFIG);
    call("gs_site_config_init_format", writes(bytes), formatNumber(format));
    const view = new DataView(bytes.buffer);
    return {
      interval: view.getUint32(4, true),
      calls: CALLS[view.getUint32(8, true)],
      history: HISTORIES[view.getUint32(12, true)],
      gamma: view.getFloat64(16, true),
      window: view.getInt32(24, true),
      headroom: view.getInt32(28, true),
      outliers: view.getInt32(32, true),
      format,
    };
  }

  /** Format of the site's stores. */
  get format() {
    const number = new Uint32Array(1);
    call("gs_site_format", reads(this.#bytes), writes(number));
    return /** @type {SiteConfig["format"]} */ (FORMATS[number[0]]);
  }

  /**
   * Returns the instructions for the coming step.
   * @returns {Request}
   */
  request() {
    const words = new Uint32Array(4);
    call("gs_site_request", reads(this.#bytes), writes(words));
    const [decidesInStep, detail, hasExponent, exponent] = words;
    return {
      decidesInStep: decidesInStep !== 0,
      detail: DETAILS[detail],
      hasExponent: hasExponent !== 0,
      exponent: exponent | 0,
    };
  }

  /**
   * Decides inside the step, from a row with a histogram of the values to be stored, and returns the exponent for the
   * store. If nothing can be decided (all values are zero, or some are not finite), it is the exponent in force, or
   * `incoming`: the exponent of the site from which the gradient comes, 0 for the loss.
   * @param {Row} row
   * @param {number} [incoming]
   */
  decide(row, incoming = 0) {
    const exponent = new Uint32Array(1);
    const seen = reads(bytesOfRow(instanceOf(row, "row", Row)));
    call("gs_site_decide", changes(this.#bytes), seen, integer(incoming, "incoming"), writes(exponent));
    return exponent[0] | 0;
  }

  /**
   * The last decision, if there was one.
   * @returns {Decision | undefined}
   */
  decision() {
    const bytes = new Uint8Array(24);
    const answer = status("gs_site_decision", [reads(this.#bytes), writes(bytes)]);
    if (answer === "GS_ERROR_NO_DECISION") return undefined;
    if (answer !== "GS_OK") throw refused(answer);
    const view = new DataView(bytes.buffer);
    return {
      exponent: view.getInt32(8, true),
      flushedPredicted: view.getFloat64(0, true),
      exponentDelta: view.getInt32(12, true),
      limitedBy: LIMITS[view.getUint32(16, true)],
      trigger: TRIGGERS[view.getUint32(20, true)],
    };
  }

  /**
   * Takes the row of a step, of all micro-batches and calls, and how the step ended. Once for each site and step;
   * {@link endStep} does it for all sites.
   * @param {Row} row
   * @param {SiteOutcome} outcome
   */
  finish(row, outcome) {
    const seen = reads(bytesOfRow(instanceOf(row, "row", Row)));
    call("gs_site_finish", changes(this.#bytes), seen, choice(outcome, "outcome", SITE_OUTCOMES));
  }

  /** A copy of its bytes: a checkpoint. */
  toBytes() {
    return this.#bytes.slice();
  }

  /**
   * Restores a site from its bytes. Bytes that were modified, or that another version has written, are refused.
   * @param {Uint8Array} bytes
   */
  static fromBytes(bytes) {
    if (instanceOf(bytes, "bytes", Uint8Array).length !== BYTES) {
      throw new RangeError(`a site has ${BYTES} bytes, not ${bytes.length}`);
    }
    const site = new Site();
    site.#bytes.set(bytes);
    site.request();
    return site;
  }
}
