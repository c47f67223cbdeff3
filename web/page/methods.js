// Methods that train side by side: as the library reads them, and as the page names them.
export const METHODS = [
  { name: "fp32", label: "FP32" },
  { name: "fp16", label: "FP16 without scale" },
  { name: "dynamic", label: "dynamic loss scale as in PyTorch" },
  { name: "gs", label: "gradscale" },
];

/** A power of two as people read it. */
export const spoken = (exponent) =>
  exponent === 0 ? "1" : `2${[...String(exponent)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("")}`;

/** A share in percent, with a second decimal where it is small. */
export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.001 ? 2 : 1)} %`;

/** Number of digits in the test set of `training.rs`. */
export const TESTED = 500;

/** Exponents of the scales that a method has now: none, that of the loss, or one for each gradient. */
export function exponents({ name, report }) {
  if (!report || name === "fp32") return [];
  return name === "gs" ? report.sites.map(({ scale }) => scale) : [report.loss_scale];
}

/** The scale of a method in words: a range, if it has several. */
export function scale(method) {
  const all = exponents(method);
  if (all.length === 0) return "–";
  const [least, most] = [Math.min(...all), Math.max(...all)];
  return least === most ? spoken(least) : `${spoken(least)}–${spoken(most)}`;
}
