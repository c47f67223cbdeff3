/** @typedef {{ m: number, n: number, k: number, transposeA?: boolean, transposeB?: boolean }} Shape */
/**
 * The product of two matrices, row by row, in f32: `[m, k]` by `[k, n]`, or stored transposed as `[k, m]` and `[n, k]`. Each is
 * f32 or, in a Uint16Array, patterns of FP16.
 * @param {Float32Array | Uint16Array} a
 * @param {Float32Array | Uint16Array} b
 * @param {Shape} shape
 */
export function matMul(a: Float32Array | Uint16Array, b: Float32Array | Uint16Array, shape: Shape): Float32Array<ArrayBuffer>;
export type Shape = {
    m: number;
    n: number;
    k: number;
    transposeA?: boolean;
    transposeB?: boolean;
};
