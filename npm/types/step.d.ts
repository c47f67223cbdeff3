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
export function endStep(sites: Site[], rows: Row[], settings: StepOptions): Outcome;
/** One step of all sites, in the order of the backward pass. */
export class Step {
    /** @param {Site[]} sites */
    constructor(sites: Site[]);
    /**
     * Stores a gradient at the next site: values at `fromExponent` become patterns of FP16 at the site's exponent.
     * @param {Float32Array} v
     * @param {number} [fromExponent]
     */
    store(v: Float32Array, fromExponent?: number): {
        halves: Uint16Array<ArrayBuffer>;
        exponent: number;
    };
    /**
     * Stores a gradient at the next site, whose format is one of eight bits: values at `fromExponent` become patterns of that
     * format at the site's exponent.
     * @param {Float32Array} v
     * @param {number} [fromExponent]
     */
    store8(v: Float32Array, fromExponent?: number): {
        bytes: Uint8Array<ArrayBuffer>;
        exponent: number;
    };
    /**
     * Ends the step, or this attempt at it: after `"repeat"`, store the same batch again.
     * @param {{ foundInf: boolean, repeatable?: boolean }} settings
     */
    end(settings: {
        foundInf: boolean;
        repeatable?: boolean;
    }): Outcome;
    /** Discards the step after an error in it: every site is as it was before. */
    discard(): void;
    #private;
}
export type StepOptions = {
    foundInf: boolean;
    repeatable?: boolean;
    failedAttempts?: number;
};
/**
 * Outcome of a step.
 */
export type Outcome = {
    /**
     * `"step"`: update the parameters. `"repeat"`: update nothing, and run the same
     * batch again. `"skip"`: update nothing, and continue with the next batch.
     */
    next: (typeof NEXT_ACTIONS)[number];
    /**
     * Kind of the values at the first site where they were not finite.
     */
    nonFinite: (typeof NON_FINITE)[number];
    /**
     * Index of that site, if there is one.
     */
    site: number | undefined;
};
import { Site } from "./site.js";
import { Row } from "./row.js";
declare const NEXT_ACTIONS: readonly ["step", "repeat", "skip"];
declare const NON_FINITE: readonly [null, "overflow", "infinite", "nan"];
export {};
