/** @typedef {{ foundInf: boolean, repeatable?: boolean, failed?: number }} StepOptions */
/**
 * Outcome of a step.
 * @typedef {object} Outcome
 * @property {(typeof NEXT_STEPS)[number]} next `"step"`: update the parameters. `"repeat"`: update nothing, and run the same
 *   batch again. `"skip"`: update nothing, and continue with the next batch.
 * @property {(typeof CAUSES)[number]} cause Kind of the values at the first site where they were not finite.
 * @property {number | undefined} site Index of that site, if there is one.
 */
/**
 * Ends a step for all sites, whose rows are in the order of the backward pass. `foundInf`: some gradient of a parameter
 * is not finite. `repeatable`: the same batch can be run again, so no batch is lost; `failed` counts how often that was
 * done in this step. If one of the sites or rows is invalid, none of them changes.
 * @param {Site[]} sites
 * @param {Row[]} rows
 * @param {StepOptions} settings
 * @returns {Outcome}
 */
export function stepEnd(sites: Site[], rows: Row[], settings: StepOptions): Outcome;
/** One step of all sites, in the order of the backward pass. */
export class Step {
    /** @param {Site[]} sites */
    constructor(sites: Site[]);
    /**
     * Stores a gradient at the next site: values at the exponent `from` become patterns of FP16 at the site's exponent.
     * @param {Float32Array} v
     * @param {number} [from]
     */
    store(v: Float32Array, from?: number): {
        halves: Uint16Array<ArrayBuffer>;
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
    /** Gives the step up, after an error on the way: every site is as it was before. */
    abandon(): void;
    #private;
}
export type StepOptions = {
    foundInf: boolean;
    repeatable?: boolean;
    failed?: number;
};
/**
 * Outcome of a step.
 */
export type Outcome = {
    /**
     * `"step"`: update the parameters. `"repeat"`: update nothing, and run the same
     * batch again. `"skip"`: update nothing, and continue with the next batch.
     */
    next: (typeof NEXT_STEPS)[number];
    /**
     * Kind of the values at the first site where they were not finite.
     */
    cause: (typeof CAUSES)[number];
    /**
     * Index of that site, if there is one.
     */
    site: number | undefined;
};
import { Site } from "./site.js";
import { Row } from "./row.js";
declare const NEXT_STEPS: readonly ["step", "repeat", "skip"];
declare const CAUSES: readonly [null, "overflowed", "infinite", "nan"];
export {};
