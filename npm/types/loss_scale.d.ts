/** A loss scale with its whole state. */
export class LossScale {
    /**
     * The usual numbers: 2^16, doubled after 2000 clean steps in a row, halved at each overflow.
     * @returns {DynamicConfig}
     */
    static usual(): DynamicConfig;
    /**
     * @param {string} name
     * @param {number[]} numbers
     */
    static "__#private@#made"(name: string, ...numbers: number[]): LossScale;
    /**
     * A constant: a power of two from 2^-126 to 2^126.
     * @param {number} scale
     */
    static fixed(scale: number): LossScale;
    /**
     * As large as the largest gradient of the last `history` steps (1 to 16) allows, less `margin` exponents.
     * @param {{ history?: number, margin?: number } & Bounds} [config]
     */
    static delayed(config?: {
        history?: number;
        margin?: number;
    } & Bounds): LossScale;
    /**
     * Follows mean and spread of log2 of the largest gradient (LogMax); `ceiling` is the log2 of what overflows.
     * @param {{ meanDecay?: number, spreadDecay?: number, quantile?: number, ceiling?: number } & Bounds} [config]
     */
    static logMax(config?: {
        meanDecay?: number;
        spreadDecay?: number;
        quantile?: number;
        ceiling?: number;
    } & Bounds): LossScale;
    /**
     * Grows a little in every step, by 2 in `interval` steps, and is halved at an overflow.
     * @param {{ interval?: number } & Bounds} [config]
     */
    static chainer(config?: {
        interval?: number;
    } & Bounds): LossScale;
    /**
     * The loss scale of such bytes. What was written to by somebody else, or by another version, is refused.
     * @param {Uint8Array} bytes
     */
    static fromBytes(bytes: Uint8Array): LossScale;
    /**
     * Dynamic; what is not said is as {@link LossScale.usual} has it. The other kinds are made by functions of this class.
     * @param {Partial<DynamicConfig>} [config]
     */
    constructor(config?: Partial<DynamicConfig>);
    /** The exponent in force: multiply the loss by 2^exponent. */
    get exponent(): number;
    /**
     * Takes the end of a step, once for each, skipped ones included. `foundInf`: some gradient was not finite. `amax` is the
     * largest magnitude of a gradient, as it was seen, at the exponent `at`; NaN where it is not known.
     * @param {boolean} foundInf
     * @param {number} [amax]
     * @param {number} [at]
     */
    update(foundInf: boolean, amax?: number, at?: number): void;
    /** A copy of its bytes: a checkpoint. */
    toBytes(): Uint8Array<ArrayBuffer>;
    #private;
}
/**
 * The numbers of a dynamic scale.
 */
export type DynamicConfig = {
    /**
     * Exponent of the first step.
     */
    start: number;
    /**
     * Exponent added after so many clean steps, positive.
     */
    growth: number;
    /**
     * Exponent added after an overflow, negative.
     */
    backoff: number;
    /**
     * Clean steps in a row before the scale grows.
     */
    interval: number;
    /**
     * Least exponent.
     */
    least: number;
    /**
     * Greatest exponent.
     */
    most: number;
    /**
     * Which overflow lowers it: each one, the n-th since it last grew (Megatron),
     * or the n-th without a clean step between (DeepSpeed's switch).
     */
    hysteresis: (typeof HYSTERESES)[number];
    /**
     * Its n, at least 1.
     */
    overflows: number;
    /**
     * Lower only when overflows make up this share of the steps since the last change, in parts per
     * million.
     */
    tolerancePpm: number;
    /**
     * A minimum that rises, in at most eight steps: from so many steps taken on, the least
     * exponent is this.
     */
    floor: [number, number][];
};
export type Bounds = {
    least?: number;
    most?: number;
};
declare const HYSTERESES: readonly ["none", "cumulative", "consecutive"];
export {};
