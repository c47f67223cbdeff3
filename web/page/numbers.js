// Numbers of what the page shows, as text that people can paste elsewhere.
import { TESTED, percent, scale, spoken } from "./methods.js";

/** Returns settings and results of all methods as a table in Markdown; `broken` is the number of digits with one broken, or null. */
export function numbers(methods, { magnitude, broken, device, address }) {
  const known = methods.find(({ report }) => report)?.report;
  const image = broken ? `one broken image in ${broken} digits` : "no broken image";
  const came = known?.broken > 0 ? `, in ${known.broken} batches so far` : "";
  const worst = ({ report }) => percent(Math.max(0, ...report.sites.map(({ flushed }) => flushed)));
  const rows = methods.map((method) => {
    const { name, label, report, right, points } = method;
    const loss = points.at(-1)?.loss.toFixed(4) ?? "–";
    const zeros = !report || name === "fp32" ? "–" : worst(method);
    const cells = [label, loss, right ?? "–", scale(method), zeros, report?.skipped ?? 0, report?.repeated ?? 0];
    return `| ${cells.join(" | ")} |`;
  });
  return [
    `gradscale in the browser: step ${known?.step ?? 0}, seed 1, loss × ${spoken(magnitude)}, ${image}${came}; ${device}`,
    "",
    `| method | loss | correct of ${TESTED} | scale | zeros in the worst gradient | steps skipped | batches repeated |`,
    "|---|---|---|---|---|---|---|",
    ...rows,
    "",
    address,
  ].join("\n");
}

/** Copies a text, and returns false if the browser does not allow it. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
