/** @typedef {{ foundInf: boolean, repeatable?: boolean, failed?: number }} StepOptions */
/**
 * How a step ended.
 * @typedef {object} Outcome
 * @property {(typeof NEXT_STEPS)[number]} next `"step"`: the parameters may be updated. `"repeat"`: nothing may; run the same batch
 *   again. `"skip"`: nothing may; go on with the next batch.
 * @property {(typeof CAUSES)[number]} cause What was seen at the site where values stopped being finite.
 * @property {number | undefined} site Its index, if there is one.
 */
/**
 * Ends a step for all sites, whose rows lie in the order of the backward pass. `foundInf`: some gradient of a parameter is not
 * finite. `repeatable`: the same batch can be run again, which loses none; `failed` counts how often that was done in this
 * step. If something is wrong with one of the sites or rows, none of them changes.
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
     * Stores a gradient at the next site: values at the exponent `from` become patterns of FP16 at the exponent that is told.
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
 * How a step ended.
 */
export type Outcome = {
    /**
     * `"step"`: the parameters may be updated. `"repeat"`: nothing may; run the same batch
     * again. `"skip"`: nothing may; go on with the next batch.
     */
    next: (typeof NEXT_STEPS)[number];
    /**
     * What was seen at the site where values stopped being finite.
     */
    cause: (typeof CAUSES)[number];
    /**
     * Its index, if there is one.
     */
    site: number | undefined;
};
import { Site } from "./site.js";
import { Row } from "./row.js";
declare const NEXT_STEPS: readonly ["step", "repeat", "skip"];
declare const CAUSES: readonly [null, "overflowed", "infinite", "nan"];
export {};
