// Interpretation of the drawings in a sentence.

/** Returns, for `{ name, report }` of each method, which methods learn at this loss, and which have no gradient left.
/** */
export function verdict(methods) {
  const told = methods.filter(({ report }) => report !== null);
  if (told.length === 0) return "Train: at a loss × 1 all four learn alike. Then move the slider to 2⁻⁴⁰ and begin anew.";
  // If a gradient is all zeros, no earlier layer receives one.
  const lost = told.filter(({ report }) => report.sites.some(({ flushed }) => flushed > 0.999)).map(({ name }) => name);
  if (lost.length === 0) return "All four learn: in FP16 too, enough of each gradient is left.";
  const others = told.map(({ name }) => name).filter((name) => !lost.includes(name));
  const learn = lost.length === 1 ? "learns" : "learn";
  return `${listed(lost)} ${learn} nothing at this loss: of a gradient every value has become zero. ${listed(others)} ${others.length === 1 ? "goes" : "go"} on.`;
}

const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
