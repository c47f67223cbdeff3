// The end of a step, for all sites.
import { count, instanceOf, options, truth } from "./check.js";
import { call, changes, reads, writes } from "./library.js";
import { Row, bytesOf as bytesOfRow } from "./row.js";
import { Site, bytesOf as bytesOfSite } from "./site.js";

const NEXT_ACTIONS = /** @type {const} */ (["step", "repeat", "skip"]);
const NON_FINITE = /** @type {const} */ ([null, "overflow", "infinite", "nan"]);

/** @typedef {{ foundInf: boolean, repeatable?: boolean, failedAttempts?: number }} StepOptions */
/**
 * Outcome of a step.
 * @typedef {object} Outcome
 * @property {(typeof NEXT_ACTIONS)[number]} next `"step"`: update the parameters. `"repeat"`: update nothing, and run the same
 *   batch again. `"skip"`: update nothing, and continue with the next batch.
 * @property {(typeof NON_FINITE)[number]} nonFinite Kind of the values at the first site where they were not finite.
 * @property {number | undefined} site Index of that site, if there is one.
 */

/**
 * Ends a step for all sites, whose rows are in the order of the backward pass. `foundInf`: some gradient of a parameter
 * is not finite. `repeatable`: the same batch can be run again, so no batch is lost; `failedAttempts` counts
 * how often that was done in this step. If one of the sites or rows is invalid, none of them changes.
 * @param {Site[]} sites
 * @param {Row[]} rows
 * @param {StepOptions} settings
 * @returns {Outcome}
 */
export function endStep(sites, rows, settings) {
  const known = ["foundInf", "repeatable", "failedAttempts"];
  const { foundInf, repeatable = false, failedAttempts = 0 } = options(settings, "settings", known);
  const inside = instanceOf(sites, "sites", Array).map((site, i) => bytesOfSite(instanceOf(site, `site ${i}`, Site)));
  const seen = instanceOf(rows, "rows", Array).map((row, i) => bytesOfRow(instanceOf(row, `row ${i}`, Row)));
  if (inside.length !== seen.length) throw new RangeError(`${inside.length} sites do not fit ${seen.length} rows`);
  if (new Set(inside).size !== inside.length) throw new RangeError("a site can end a step only once");
  const joined = concatenate(inside);
  const outcome = new Uint8Array(16);
  const flags = [truth(foundInf, "foundInf"), truth(repeatable, "repeatable"), count(failedAttempts, "failedAttempts")];
  call("gs_step_end", changes(joined), reads(concatenate(seen)), inside.length, ...flags, writes(outcome));
  let at = 0;
  for (const bytes of inside) {
    bytes.set(joined.subarray(at, at + bytes.length));
    at += bytes.length;
  }
  const view = new DataView(outcome.buffer);
  const site = Number(view.getBigUint64(8, true));
  return {
    next: NEXT_ACTIONS[view.getUint32(0, true)],
    nonFinite: NON_FINITE[view.getUint32(4, true)],
    site: site < inside.length ? site : undefined,
  };
}

/** @param {Uint8Array[]} parts */
function concatenate(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** One step of all sites, in the order of the backward pass. */
export class Step {
  /** @type {Site[]} */
  #sites;
  /** @type {Uint8Array[]} */
  #before;
  /** @type {Row[]} */
  #rows = [];
  #failedAttempts = 0;
  #ended = false;

  /** @param {Site[]} sites */
  constructor(sites) {
    this.#sites = instanceOf(sites, "sites", Array).map((site, i) => instanceOf(site, `site ${i}`, Site));
    this.#before = this.#sites.map((site) => site.toBytes());
  }

  /**
   * Stores a gradient at the next site: values at `fromExponent` become patterns of FP16 at the site's exponent.
   * @param {Float32Array} v
   * @param {number} [fromExponent]
   */
  store(v, fromExponent = 0) {
    const row = this.#nextRow(v, fromExponent);
    const halves = row.store(v, fromExponent);
    this.#rows.push(row);
    return { halves, exponent: row.exponent };
  }

  /**
   * Stores a gradient at the next site, whose format is one of eight bits: values at `fromExponent` become patterns of that
   * format at the site's exponent.
   * @param {Float32Array} v
   * @param {number} [fromExponent]
   */
  store8(v, fromExponent = 0) {
    const row = this.#nextRow(v, fromExponent);
    const bytes = row.store8(v, fromExponent);
    this.#rows.push(row);
    return { bytes, exponent: row.exponent };
  }

  /**
   * An empty row at the exponent of the next site, which decides first if it has to.
   * @param {Float32Array} v
   * @param {number} fromExponent
   */
  #nextRow(v, fromExponent) {
    const site = this.#sites[this.#rows.length];
    if (this.#ended || !site) throw new RangeError("a step can store at each site only once");
    const { decidesInStep, detail, exponent: inForce } = site.request();
    let exponent = inForce;
    if (decidesInStep) {
      const look = new Row({ exponent: fromExponent, detail, format: site.format });
      look.observe(v);
      exponent = site.decide(look, fromExponent);
    }
    return new Row({ exponent, detail, format: site.format });
  }

  /**
   * Ends the step, or this attempt at it: after `"repeat"`, store the same batch again.
   * @param {{ foundInf: boolean, repeatable?: boolean }} settings
   */
  end(settings) {
    if (this.#ended || this.#rows.length !== this.#sites.length) {
      throw new RangeError("a step can store at each site only once, and end only once");
    }
    const { foundInf, repeatable = false } = options(settings, "settings", ["foundInf", "repeatable"]);
    const outcome = endStep(this.#sites, this.#rows, { foundInf, repeatable, failedAttempts: this.#failedAttempts });
    this.#failedAttempts++;
    this.#rows = [];
    this.#ended = outcome.next !== "repeat";
    return outcome;
  }

  /** Discards the step after an error in it: every site is as it was before. */
  discard() {
    if (this.#ended) return;
    this.#sites.forEach((site, i) => bytesOfSite(site).set(this.#before[i]));
    this.#ended = true;
  }
}
