// Products of matrices, by the CPU backend's kernels.
import { count, instanceOf, options, truth } from "./check.js";
import { call, reads, writes } from "./library.js";

/** @typedef {{ m: number, n: number, k: number, transposeA?: boolean, transposeB?: boolean }} Shape */

/**
 * The product of two matrices, row by row, in f32: `[m, k]` by `[k, n]`, or stored transposed as `[k, m]` and `[n, k]`. Each is
 * f32 or, in a Uint16Array, patterns of FP16.
 * @param {Float32Array | Uint16Array} a
 * @param {Float32Array | Uint16Array} b
 * @param {Shape} shape
 */
export function matMul(a, b, shape) {
  const known = ["m", "n", "k", "transposeA", "transposeB"];
  const { m, n, k, transposeA = false, transposeB = false } = options(shape, "shape", known);
  const sizes = [count(m, "m"), count(n, "n"), count(k, "k")];
  const halves = operand(a, "a", m * k) | (operand(b, "b", k * n) << 1);
  const transposed = truth(transposeA, "transposeA") | (truth(transposeB, "transposeB") << 1);
  if (m * n > 2 ** 30) throw new RangeError(`a product of ${m} × ${n} elements is too large`);
  const y = new Float32Array(m * n);
  call("gs_npm_matmul", reads(a), reads(b), writes(y), ...sizes, halves, transposed);
  return y;
}

/**
 * Looks at an operand; 1 if it is of halves.
 * @param {Float32Array | Uint16Array} values
 * @param {string} name
 * @param {number} elements
 */
function operand(values, name, elements) {
  if (instanceOf(values, name, Float32Array, Uint16Array).length !== elements) {
    throw new RangeError(`${name} must have ${elements} elements, not ${values.length}`);
  }
  return values instanceof Uint16Array ? 1 : 0;
}
