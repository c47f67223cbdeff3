// Interpretation of the drawings in a sentence.
import { TESTED, spoken } from "./methods.js";

/** True if a gradient has only zeros: then no earlier layer receives one, and nothing is learned. */
export const isDead = ({ report }) => report.sites.some(({ flushed }) => flushed > 0.999);

/**
 * Returns which methods learn, which have no gradient left, and what the broken image did to the scales. Of each method it
 * reads `name`, `label`, `report` and, after a test, `right`, the number of digits classified correctly. The
 * dynamic loss scale has `start`, the exponent before the first broken image.
 */
export function verdict(methods) {
  const told = methods.filter(({ report }) => report !== null);
  if (told.length === 0) return "Press Train to start.";
  const find = (name) => told.find((method) => method.name === name);
  const dynamic = find("dynamic");
  if (dynamic?.report.broken > 0) return broken(dynamic, find("gs"), find("fp32"));
  const lost = told.filter(isDead);
  if (lost.length === 0) return "All four learn: FP16 keeps enough of each gradient.";
  const others = told.filter((method) => !lost.includes(method));
  return `${start(listed(lost))} ${learn(lost)} nothing at this loss: every value of a gradient became zero. ${start(listed(others))} ${learn(others)}.`;
}

/** Returns what the broken image did. */
function broken(dynamic, gs, fp32) {
  const { report, start: from } = dynamic;
  const times = report.broken === 1 ? "once" : `${report.broken} times`;
  const fell = `The broken image came ${times}: the dynamic loss scale fell from ${spoken(from)} to ${spoken(report.loss_scale)}`;
  if (!isDead(dynamic)) return `${fell}. gradscale keeps its scales.`;
  const scores = [gs, fp32].map(({ label, right }) => `${label} ${right ?? "–"}`).join(", ");
  return `${fell}, its gradients became zero, and it learns nothing more. Correct of ${TESTED}: it ${dynamic.right ?? "–"}, ${scores}.`;
}

const learn = (methods) => (methods.length === 1 ? "learns" : "learn");
const start = (text) => (text.startsWith("gradscale") ? text : text[0].toUpperCase() + text.slice(1));
const listed = (methods) => {
  const names = methods.map(({ label }) => label);
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
};
