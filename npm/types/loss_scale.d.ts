/** A loss scale with its whole state. */
export class LossScale {
    /**
     * Default settings: 2^16, doubled after 2000 consecutive finite steps, halved at each overflow.
     * @returns {DynamicConfig}
     */
    static defaultConfig(): DynamicConfig;
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
     * Follows mean and spread of log2 of the largest gradient (LogMax); `ceiling` is the log2 of the overflow threshold.
     * @param {{ meanDecay?: number, spreadDecay?: number, quantile?: number, ceiling?: number } & Bounds} [config]
     */
    static logMax(config?: {
        meanDecay?: number;
        spreadDecay?: number;
        quantile?: number;
        ceiling?: number;
    } & Bounds): LossScale;
    /**
     * Grows a little in every step, by 2 in `growthInterval` steps, and is halved at an overflow.
     * @param {{ growthInterval?: number } & Bounds} [config]
     */
    static chainer(config?: {
        growthInterval?: number;
    } & Bounds): LossScale;
    /**
     * Restores a loss scale from its bytes. Bytes that were modified, or that another version has written, are refused.
     * @param {Uint8Array} bytes
     */
    static fromBytes(bytes: Uint8Array): LossScale;
    /**
     * Creates a dynamic scale. Missing settings are those of {@link LossScale.defaultConfig}. Functions of this class create the
     * other kinds.
     * @param {Partial<DynamicConfig>} [config]
     */
    constructor(config?: Partial<DynamicConfig>);
    /** The exponent in force: multiply the loss by 2^exponent. */
    get exponent(): number;
    /**
     * Takes the end of a step, once for each, skipped ones included. `foundInf`: some gradient was not finite. `amax` is the
     * largest magnitude of a gradient, measured at the exponent `amaxExponent`; NaN where it is not known.
     * @param {boolean} foundInf
     * @param {number} [amax]
     * @param {number} [amaxExponent]
     */
    update(foundInf: boolean, amax?: number, amaxExponent?: number): void;
    /** A copy of its bytes: a checkpoint. */
    toBytes(): Uint8Array<ArrayBuffer>;
    #private;
}
/**
 * Settings of a dynamic loss scale.
 */
export type DynamicConfig = {
    /**
     * Exponent of the scale in the first step.
     */
    initExponent: number;
    /**
     * Exponent added after `growthInterval` finite steps, which is positive.
     */
    growthExponent: number;
    /**
     * Exponent added after an overflow, which is negative.
     */
    backoffExponent: number;
    /**
     * Number of consecutive finite steps after which the scale grows.
     */
    growthInterval: number;
    /**
     * Minimum exponent of the scale.
     */
    minExponent: number;
    /**
     * Maximum exponent of the scale.
     */
    maxExponent: number;
    /**
     * Overflow that lowers it: each one, the n-th since it last grew (Megatron),
     * or the n-th without a finite step in between (DeepSpeed's switch).
     */
    hysteresis: (typeof HYSTERESES)[number];
    /**
     * Number n of overflows of the hysteresis, at least 1.
     */
    hysteresisOverflows: number;
    /**
     * Minimum share of overflows among the steps since the last change that lowers the scale, in
     * parts per million.
     */
    tolerancePpm: number;
    /**
     * Rising minimum of at most eight steps: numbers of training steps, and the minimum
     * exponent from each of them on.
     */
    floor: [number, number][];
};
export type Bounds = {
    minExponent?: number;
    maxExponent?: number;
};
declare const HYSTERESES: readonly ["none", "cumulative", "consecutive"];
export {};
