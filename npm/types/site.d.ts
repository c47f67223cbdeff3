/**
 * The bytes of a site themselves, for the end of a step.
 * @type {(site: Site) => Uint8Array}
 */
export let bytesOf: (site: Site) => Uint8Array;
/** The exponent of one gradient: kept from step to step. */
export class Site {
    /**
     * Default settings for a format of stores: every 10 steps, with the history of 16 rows, at most one value in a thousand
     * flushed.
     * @param {SiteConfig["format"]} [format]
     * @returns {SiteConfig}
     */
    static defaultConfig(format?: SiteConfig["format"]): SiteConfig;
    /**
     * Restores a site from its bytes. Bytes that were modified, or that another version has written, are refused.
     * @param {Uint8Array} bytes
     */
    static fromBytes(bytes: Uint8Array): Site;
    /**
     * Creates a site without an exponent. Missing settings are those of {@link Site.defaultConfig} for the format.
     * @param {Partial<SiteConfig>} [config]
     */
    constructor(config?: Partial<SiteConfig>);
    /** Format of the site's stores. */
    get format(): SiteConfig["format"];
    /**
     * Returns the instructions for the coming step.
     * @returns {Request}
     */
    request(): Request;
    /**
     * Decides inside the step, from a row with a histogram of the values to be stored, and returns the exponent for the
     * store. If nothing can be decided (all values are zero, or some are not finite), it is the exponent in force, or
     * `incoming`: the exponent of the site from which the gradient comes, 0 for the loss.
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
     * {@link endStep} does it for all sites.
     * @param {Row} row
     * @param {SiteOutcome} outcome
     */
    finish(row: Row, outcome: SiteOutcome): void;
    /** A copy of its bytes: a checkpoint. */
    toBytes(): Uint8Array<ArrayBuffer>;
    #private;
}
export type SiteOutcome = (typeof SITE_OUTCOMES)[number];
/**
 * Settings of a site's decisions.
 */
export type SiteConfig = {
    /**
     * Number of steps from one decision to the next, at least 1.
     */
    interval: number;
    /**
     * Number of times that the site's store runs in one step.
     */
    calls: (typeof CALLS)[number];
    /**
     * Influence of earlier rows: none, the lowest ceiling of the
     * last 16, or all of these.
     */
    history: (typeof HISTORIES)[number];
    /**
     * Maximum share of the values that may flush, 1e-6 to 1.
     */
    gamma: number;
    /**
     * Exponents above the threshold that the rule goes if there is enough range: 0 to 30.
     */
    window: number;
    /**
     * Headroom above the largest value in bits: 2 to 30.
     */
    headroom: number;
    /**
     * Batches more than this number of exponents above the history are skipped: 8 to 100, or
     * 0 for no limit.
     */
    outliers: number;
    /**
     * Format of the store, which the site's rows must have.
     */
    format: (typeof STORE_FORMATS)[number];
};
/**
 * Instructions of a site for the coming step.
 */
export type Request = {
    /**
     * Observe the f32 values first ({@link Row.observe}), and decide ({@link Site.decide}).
     */
    decidesInStep: boolean;
    /**
     * Level of detail of the row.
     */
    detail: (typeof DETAILS)[number];
    /**
     * True if the site has an exponent.
     */
    hasExponent: boolean;
    /**
     * Exponent in force, 0 before the first decision.
     */
    exponent: number;
};
/**
 * Decision of a site.
 */
export type Decision = {
    /**
     * Exponent that the site uses since this decision.
     */
    exponent: number;
    /**
     * Predicted share of the values that will flush; NaN without a prediction.
     */
    flushedPredicted: number;
    /**
     * Decided exponent relative to that of the row.
     */
    exponentDelta: number;
    /**
     * Constraint that determined the exponent.
     */
    limitedBy: (typeof LIMITS)[number];
    /**
     * Event that caused the decision.
     */
    trigger: (typeof TRIGGERS)[number];
};
import { Row } from "./row.js";
declare const SITE_OUTCOMES: readonly ["stepped", "skipped", "skipped_downstream", "rolled_back"];
declare const CALLS: readonly ["one", "several"];
declare const HISTORIES: readonly ["none", "min", "ring"];
declare const STORE_FORMATS: readonly ["fp16", "e5m2", "e4m3"];
import { DETAILS } from "./row.js";
declare const LIMITS: readonly ["threshold", "normal_range", "overflow", "range", "one"];
declare const TRIGGERS: readonly ["first", "interval", "overflow", "after_skip", "repeat"];
export {};
