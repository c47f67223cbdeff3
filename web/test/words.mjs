// Sentences and numbers of the page, for methods in every state, without a browser.
import assert from "node:assert/strict";
import { METHODS, scale } from "../page/methods.js";
import { numbers } from "../page/numbers.js";
import { verdict } from "../page/verdict.js";

/** A method with the share of zeros in its gradients, and the exponents of its scales. */
const method = (name, flushed, exponents, { broken = 0, right = null } = {}) => ({
  ...METHODS.find((one) => one.name === name),
  right,
  start: 16,
  points: [{ step: 40, loss: 0.51234, exponents: [] }],
  report: {
    step: 40, loss_scale: name === "dynamic" ? exponents[0] : 0, broken, skipped: broken, repeated: 0,
    sites: name === "fp32" ? [] : exponents.map((scale) => ({ scale, flushed })),
  },
});
const four = (fp16, dynamic, exponent, more) =>
  [method("fp32", 0, [], more), method("fp16", fp16, [0, 0], more), method("dynamic", dynamic, [exponent, exponent], more), method("gs", 0.01, [31, 34], more)];

const CASES = [
  [METHODS.map((one) => ({ ...one, report: null, points: [] })), "Press Train to start."],
  [four(0.5, 0, 16), "All four learn: FP16 keeps enough of each gradient."],
  [four(1, 0, 16), "FP16 without scale learns nothing at this loss: every value of a gradient became zero. FP32, dynamic loss scale as in PyTorch and gradscale learn."],
  [four(1, 1, 16), "FP16 without scale and dynamic loss scale as in PyTorch learn nothing at this loss: every value of a gradient became zero. FP32 and gradscale learn."],
  [four(1, 0.7, 15, { broken: 1 }), "The broken image came once: the dynamic loss scale fell from 2¹⁶ to 2¹⁵. gradscale keeps its scales."],
  [four(1, 1, -3, { broken: 19, right: 250 }),
    "The broken image came 19 times: the dynamic loss scale fell from 2¹⁶ to 2⁻³, its gradients became zero, and it learns nothing more. Correct of 500: it 250, gradscale 250, FP32 250."],
];
for (const [methods, want] of CASES) assert.equal(verdict(methods), want);

const all = four(1, 1, -3, { broken: 19, right: 250 });
assert.deepEqual(all.map(scale), ["–", "1", "2⁻³", "2³¹–2³⁴"]);
const settings = { magnitude: -20, broken: 200, device: "CPU", address: "http://localhost/?loss=-20&broken=200" };
const lines = numbers(all, settings).split("\n");
assert.equal(lines[0], "gradscale in the browser: step 40, seed 1, loss × 2⁻²⁰, one broken image in 200 digits, in 19 batches so far; CPU");
assert.deepEqual(lines.slice(4, 8), [
  "| FP32 | 0.5123 | 250 | – | – | 19 | 0 |",
  "| FP16 without scale | 0.5123 | 250 | 1 | 100.0 % | 19 | 0 |",
  "| dynamic loss scale as in PyTorch | 0.5123 | 250 | 2⁻³ | 100.0 % | 19 | 0 |",
  "| gradscale | 0.5123 | 250 | 2³¹–2³⁴ | 1.0 % | 19 | 0 |",
]);
assert.equal(lines.at(-1), settings.address);
assert.match(numbers(CASES[0][0], { ...settings, broken: null }), /^gradscale in the browser: step 0, .*, no broken image; CPU\n/);
console.log(`${CASES.length} sentences and the numbers to copy are right`);
