/**
 * The bytes of a site themselves, for the end of a step.
 * @type {(site: Site) => Uint8Array}
 */
export let bytesOf: (site: Site) => Uint8Array;
/** The exponent of one gradient: kept from step to step. */
export class Site {
    /**
     * The usual settings: FP16, every 10 steps, with the memory of 16 rows, at most one value in a thousand flushed.
     * @returns {SiteConfig}
     */
    static usual(): SiteConfig;
    /**
     * The site of such bytes. What was written to by somebody else, or by another version, is refused.
     * @param {Uint8Array} bytes
     */
    static fromBytes(bytes: Uint8Array): Site;
    /**
     * A site without an exponent; what is not said is as {@link Site.usual} has it.
     * @param {Partial<SiteConfig>} [config]
     */
    constructor(config?: Partial<SiteConfig>);
    /**
     * What the coming step should do.
     * @returns {Request}
     */
    request(): Request;
    /**
     * Decides at once, from a row with a histogram of the values that are to be stored, and says the exponent to store with.
     * Where nothing can be decided (all values are zero, or some are not finite) that is the one in force, or `incoming`: the
     * exponent of the site from which the gradient comes, 0 for the loss.
     * @param {Row} row
     * @param {number} [incoming]
     */
    decide(row: Row, incoming?: number): number;
    /**
     * The last decision, if there was one.
     * @returns {Decision | undefined}
     */
    decision(): Decision | undefined;
    /**
     * Takes the row of a step, of all micro-batches and calls, and how the step ended. Once for each site and step;
     * {@link stepEnd} does it for all sites.
     * @param {Row} row
     * @param {End} end
     */
    finish(row: Row, end: End): void;
    /** A copy of its bytes: a checkpoint. */
    toBytes(): Uint8Array<ArrayBuffer>;
    #private;
}
export type End = (typeof ENDS)[number];
/**
 * How a site decides.
 */
export type SiteConfig = {
    /**
     * Steps from one decision to the next, at least 1.
     */
    interval: number;
    /**
     * How often its store runs in one step.
     */
    calls: (typeof CALLS)[number];
    /**
     * What a decision knows of the rows before: nothing, the least ceiling of the
     * last 16, or all of these.
     */
    memory: (typeof MEMORIES)[number];
    /**
     * The share of the values that may flush, 1e-6 to 1.
     */
    gamma: number;
    /**
     * How far above the threshold the exponent goes where there is room: 0 to 30.
     */
    window: number;
    /**
     * Bits kept free above: 2 to 30.
     */
    room: number;
    /**
     * Batches that lie more than so many exponents above all rows remembered are left out: 8 to 100, or
     * 0 for none.
     */
    outliers: number;
};
/**
 * What a site wants of the coming step.
 */
export type Request = {
    /**
     * Look at the f32 values first ({@link Row.observe}) and decide ({@link Site.decide}).
     */
    atOnce: boolean;
    /**
     * What the row is to observe.
     */
    detail: (typeof DETAILS)[number];
    /**
     * Whether there is an exponent.
     */
    decided: boolean;
    /**
     * The one in force, 0 before the first decision.
     */
    exponent: number;
};
/**
 * A decision.
 */
export type Decision = {
    /**
     * What was decided.
     */
    exponent: number;
    /**
     * The share of the values that will flush, as predicted; NaN where it was not.
     */
    gamma: number;
    /**
     * The exponent, relative to that of the row.
     */
    k: number;
    /**
     * What bound it.
     */
    limit: (typeof LIMITS)[number];
    /**
     * What made the site decide.
     */
    trigger: (typeof TRIGGERS)[number];
};
import { Row } from "./row.js";
declare const ENDS: readonly ["stepped", "skipped_here", "skipped_after", "void"];
declare const CALLS: readonly ["one", "several"];
declare const MEMORIES: readonly ["none", "least", "ring"];
import { DETAILS } from "./row.js";
declare const LIMITS: readonly ["threshold", "normal_range", "overflow", "range", "one"];
declare const TRIGGERS: readonly ["first", "interval", "overflow", "after_skip", "repeat"];
export {};
