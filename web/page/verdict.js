// Interpretation of the drawings in a sentence.

/** Returns, for `{ name, report }` of each method, which methods learn at this loss, and which have no gradient left. */
export function verdict(methods) {
  const told = methods.filter(({ report }) => report !== null);
  if (told.length === 0) return "Press Train: at a loss × 1 all four networks learn equally well. Then move the slider to 2⁻⁴⁰ and restart.";
  // If a gradient is all zeros, no earlier layer receives one.
  const lost = told.filter(({ report }) => report.sites.some(({ flushed }) => flushed > 0.999)).map(({ name }) => name);
  if (lost.length === 0) return "All four learn: FP16 keeps enough of each gradient too.";
  const others = told.map(({ name }) => name).filter((name) => !lost.includes(name));
  const learn = lost.length === 1 ? "learns" : "learn";
  return `${listed(lost)} ${learn} nothing at this loss, because every value of a gradient became zero. ${listed(others)} ${others.length === 1 ? "learns" : "learn"}.`;
}

const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
