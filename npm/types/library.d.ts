/**
 * Begins with a module of this package.
 * @param {WebAssembly.Module} compiled
 */
export function start(compiled: WebAssembly.Module): void;
/**
 * Calls a function with numbers and arrays (`undefined`: NULL), and returns its status. Outputs are written only if
 * that is GS_OK.
 * @param {string} name
 * @param {(number | Span | undefined)[]} given
 * @returns {Status}
 */
export function status(name: string, given: (number | Span | undefined)[]): Status;
/**
 * Calls a function as `status` does, and throws an error if the status is not GS_OK.
 * @param {string} name
 * @param {(number | Span | undefined)[]} given
 */
export function call(name: string, ...given: (number | Span | undefined)[]): void;
/**
 * The error of a status, with the library's sentence.
 * @param {Status} answer
 */
export function refused(answer: Status): GradscaleError;
/** Vector instructions that the kernels use: `"SIMD128"`, or `"portable"` if the engine has none. */
export function instructionSet(): "SIMD128" | "portable";
/** Returns true if this engine has SIMD128, which it proves by accepting a module with such an instruction. */
export function hasSimd(): boolean;
/** @typedef {(typeof STATUSES)[number]} Status */
/** Error of the library: a status of gradscale.h other than GS_OK, with its sentence. Nothing has changed then. */
export class GradscaleError extends Error {
    /**
     * @param {Status} status
     * @param {string} text
     */
    constructor(status: Status, text: string);
    /** The name of the status. */
    status: "GS_OK" | "GS_ERROR_POINTER" | "GS_ERROR_LENGTH" | "GS_ERROR_OVERLAP" | "GS_ERROR_VERSION" | "GS_ERROR_CORRUPTED" | "GS_ERROR_ENUM" | "GS_ERROR_FORMAT" | "GS_ERROR_RANDOM" | "GS_ERROR_ROW" | "GS_ERROR_MERGE" | "GS_ERROR_DETAIL" | "GS_ERROR_NO_DECISION" | "GS_ERROR_GAMMA" | "GS_ERROR_WINDOW" | "GS_ERROR_HEADROOM" | "GS_ERROR_INTERVAL" | "GS_ERROR_OUTLIERS" | "GS_ERROR_SCALE" | "GS_ERROR_BOUNDS" | "GS_ERROR_INIT" | "GS_ERROR_FACTOR" | "GS_ERROR_TOLERANCE" | "GS_ERROR_FLOOR" | "GS_ERROR_DECAY" | "GS_ERROR_HISTORY" | "GS_ERROR_OTHER";
}
export function reads(numbers: Numbers): Span;
export function writes(numbers: Numbers): Span;
export function changes(numbers: Numbers): Span;
export type Status = (typeof STATUSES)[number];
export type Numbers = Float32Array | Uint32Array | Uint16Array | Uint8Array | BigUint64Array;
export type Span = {
    numbers: Numbers;
    in: boolean;
    out: boolean;
};
export type Exported = (...numbers: number[]) => number;
/** Names of the statuses of gradscale.h, by their numbers. */
declare const STATUSES: readonly ["GS_OK", "GS_ERROR_POINTER", "GS_ERROR_LENGTH", "GS_ERROR_OVERLAP", "GS_ERROR_VERSION", "GS_ERROR_CORRUPTED", "GS_ERROR_ENUM", "GS_ERROR_FORMAT", "GS_ERROR_RANDOM", "GS_ERROR_ROW", "GS_ERROR_MERGE", "GS_ERROR_DETAIL", "GS_ERROR_NO_DECISION", "GS_ERROR_GAMMA", "GS_ERROR_WINDOW", "GS_ERROR_HEADROOM", "GS_ERROR_INTERVAL", "GS_ERROR_OUTLIERS", "GS_ERROR_SCALE", "GS_ERROR_BOUNDS", "GS_ERROR_INIT", "GS_ERROR_FACTOR", "GS_ERROR_TOLERANCE", "GS_ERROR_FLOOR", "GS_ERROR_DECAY", "GS_ERROR_HISTORY", "GS_ERROR_OTHER"];
export {};
