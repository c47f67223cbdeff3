// Runs the conformance suite in Chromium, on its WebGPU, and prints its table.
//
//   conformance.mjs FOLDER           every case
//   conformance.mjs FOLDER --few     every case, with few random inputs
//   conformance.mjs FOLDER --brief   with few inputs, one case of each operator that is quick to compile
//   conformance.mjs FOLDER TEXT      those whose names contain that
import { WEBGPU, Browser, serve } from "./chromium.mjs";

const [, , folder, wanted] = process.argv;
const brief = wanted === "--brief" || wanted === "--few";
/** Operators whose first case takes seconds without a GPU: `--brief` leaves them out. */
const SLOW = [
  "pool", "unpool", "roi_pool", "norm", "norm_vjp", "cross_entropy", "cross_entropy_vjp", "record", "sum", "gemm", "attention",
  "attention_vjp",
];
const isChosen = (name, all) => {
  if (!wanted || wanted === "--few") return true;
  if (wanted !== "--brief") return name.includes(wanted);
  const [operator] = name.split("::");
  return !SLOW.includes(operator) && all.find((other) => other.split("::")[0] === operator) === name;
};

const server = await serve(folder);
const browser = await Browser.start(WEBGPU);
const counts = { passed: 0, unsupported: 0, failed: 0 };
const lines = { unsupported: [], failed: [] };
const measured = new Map();
try {
  await browser.open(server.url);
  await browser.until("window.opened");
  const opened = await browser.value("opened()");
  if (opened.said === "broken") throw new Error(opened.why);
  const { device, cases, required, tolerances } = opened;
  const start = Date.now();
  for (const [number, name] of cases.entries()) {
    if (!isChosen(name, cases)) continue;
    const began = Date.now();
    const { said, why, measured: seen } = await browser.value(`ran(${number}, ${brief})`);
    const missing = said === "unsupported" && required.includes(name.split("::")[0]);
    const outcome = said === "broken" || missing ? "failed" : said;
    counts[outcome]++;
    if (outcome === "passed") {
      for (const [entry, worst] of seen) measured.set(entry, Math.max(measured.get(entry) ?? 0, worst));
    } else lines[outcome].push(`${name}: ${missing ? "must be supported: " : ""}${why}`);
    const seconds = ((Date.now() - began) / 1000).toFixed(1);
    console.log(`${name} ... ${outcome} (${seconds} s)`);
    if (said === "broken") await browser.value("opened().then(() => 0)");
  }
  for (const [outcome, all] of Object.entries(lines)) {
    if (all.length > 0) console.log(`${outcome}:\n  ${all.join("\n  ")}`);
  }
  console.log("largest errors, in units of the tolerance table (seen, on record, allowed):");
  for (const [entry, record, bound] of tolerances) {
    if (!measured.has(entry)) continue;
    const numbers = [measured.get(entry), record, bound].map((number) => number.toFixed(3).padStart(8));
    console.log(`  ${entry.padEnd(24)} ${numbers.join(" ")}`);
  }
  const { passed, unsupported, failed } = counts;
  const took = `${((Date.now() - start) / 1000).toFixed(0)} s`;
  console.log(`conformance on WebGPU, ${device}: ${passed} of ${cases.length} cases passed, ${unsupported} unsupported, ${failed} failed; ${took}`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
} finally {
  await browser.close();
  server.close();
}
