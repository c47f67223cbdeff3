// The page: parallel trainings, their results as drawings, and the visitor's settings.
import { digits, histogram, losses, spoken } from "./charts.js";
import { pad } from "./pad.js";
import { Training, Trouble, device, lacks } from "./training.js";
import { verdict } from "./verdict.js";

const METHODS = ["fp32", "fp16", "dynamic", "gs"];
const SIDE = 16;
// Steps between two scores, and points of a line at most.
const [SCORED, POINTS] = [20, 1500];
// Approximate duration of a round in milliseconds.
const ROUND = 80;

const $ = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const state = { all: [], running: false, strokes: [], count: 1, samples: null };

const magnitude = () => Number($("magnitude").value);
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.001 ? 2 : 1)} %`;

function trouble(error) {
  stop();
  $("trouble").hidden = false;
  $("trouble").textContent = error instanceof Trouble ? error.message : `This page failed: ${error.message}. Reload it; if that does not help, please report it.`;
  if (!(error instanceof Trouble)) console.error(error);
}

function stop() {
  state.running = false;
  $("run").textContent = "Train";
}

/** Creates the entry of a method: its training, and the state of its results. */
function entry(name) {
  const panel = document.createElement("div");
  panel.className = "panel";
  panel.innerHTML = `<h3>${name}<span></span></h3><canvas role="img" aria-label="Histogram of ${name}"></canvas><p></p>`;
  $("panels").append(panel);
  const row = $("answers").tBodies[0].insertRow();
  row.innerHTML = `<th scope="row">${name}</th><td>–</td><td>–</td><td></td>`;
  const key = document.createElement("li");
  key.innerHTML = `<i style="border-color: var(--${name})"></i>${name} <span></span>`;
  $("legend").append(key);
  return { name, panel, row, key, training: new Training(name), points: [], report: null };
}

/** Starts all trainings from the beginning, at the magnitude of the slider. */
async function begin() {
  stop();
  $("trouble").hidden = true;
  for (const one of state.all) one.training.end();
  for (const id of ["panels", "legend"]) $(id).replaceChildren();
  $("answers").tBodies[0].replaceChildren();
  $("site").replaceChildren();
  state.all = METHODS.map(entry);
  state.count = 1;
  const ready = await opened();
  state.samples = (await state.all[0].training.ask({ ask: "digits", count: 40 })).images;
  // Each has a worker, which is one thread.
  state.device = ready[0].device.replace(", 1 threads", "");
  $("status").textContent = `Ready: ${state.device}`;
  for (const id of ["run", "anew", "magnitude"]) $(id).disabled = false;
  draw();
}

/** Opens all trainings on the GPU, or, where that refuses, on the processor. */
async function opened() {
  const open = { ask: "open", seed: 1, magnitude: magnitude(), device: (state.on ??= await device(asked.get("device"))) };
  try {
    return await Promise.all(state.all.map(({ name, training }) => training.ask({ ...open, method: name })));
  } catch (error) {
    if (state.on === "wasm") throw error;
    console.warn(`WebGPU: ${error.message}; WebAssembly instead`);
    state.on = "wasm";
    for (const one of state.all) {
      one.training.end();
      one.training = new Training(one.name);
    }
    return opened();
  }
}

/** Trains until it is stopped. */
async function run() {
  const all = state.all;
  state.running = true;
  $("run").textContent = "Stop";
  let [scored, began, from] = [-SCORED, performance.now(), all[0].report?.step ?? 0];
  while (state.running && state.all === all) {
    const start = performance.now();
    const reports = await Promise.all(all.map(({ training }) => training.ask({ ask: "steps", count: state.count })));
    reports.forEach((report, i) => took(all[i], report));
    const { step } = reports[0];
    if (step - scored >= SCORED) {
      scored = step;
      await score(all);
      await classify();
    }
    const time = performance.now() - start;
    state.count = Math.max(1, Math.min(20, Math.round((state.count * ROUND) / time)));
    const speed = ((step - from) / (performance.now() - began)) * 1000;
    $("status").textContent = `Step ${step}, ${speed.toFixed(speed < 10 ? 1 : 0)} steps a second, ${state.device}`;
    await new Promise((shown) => requestAnimationFrame(shown));
    if (state.all === all) draw();
  }
}

/** Stores a report of a training. */
function took(one, report) {
  one.report = report;
  one.points.push([report.step, report.loss ?? Infinity]);
  // Every other point of a long line is as good.
  if (one.points.length > POINTS) one.points = one.points.filter((_, i) => i % 2 === 1);
  const names = report.sites.map(({ name }) => name);
  if ($("site").length === 0 && names.length > 0) {
    $("site").replaceChildren(...names.map((name) => new Option(name)));
    $("site").disabled = false;
  }
}

async function score(all) {
  const scores = await Promise.all(all.map(({ training }) => training.ask({ ask: "score" })));
  scores.forEach(({ right }, i) => (all[i].row.cells[1].textContent = `${Math.round(500 * right)}`));
}

/** Shows each network's classification of the drawing. */
async function classify() {
  const all = state.all;
  if (state.strokes.length === 0) {
    for (const { row } of all) [row.cells[2].textContent, row.cells[3].textContent] = ["–", ""];
    return;
  }
  const question = { ask: "classify", strokes: state.strokes };
  const answers = await Promise.all(all.map(({ training }) => training.ask(question)));
  if (state.strokes.length === 0) return classify();
  answers.forEach(({ shares }, i) => {
    const best = shares.indexOf(Math.max(...shares));
    all[i].row.cells[2].textContent = best;
    all[i].row.cells[3].textContent = percent(shares[best]);
  });
}

function draw() {
  losses($("losses"), state.all);
  const said = verdict(state.all);
  if ($("verdict").textContent !== said) $("verdict").textContent = said;
  for (const { name, panel, key, report, points } of state.all) {
    const site = report?.sites.find((one) => one.name === $("site").value);
    const [scale, canvas, note] = [panel.querySelector("span"), panel.querySelector("canvas"), panel.querySelector("p")];
    key.querySelector("span").textContent = points.length > 0 ? points.at(-1)[1].toFixed(3) : "";
    // Values that stay in f32 are not stored as halves.
    panel.hidden = name === "fp32";
    if (panel.hidden) continue;
    histogram(canvas, site?.stored ?? [], name);
    scale.textContent = site ? `scale ${spoken(site.scale)}, ${percent(site.flushed)} zeros` : "";
    if (report) {
      const { skipped, repeated } = report;
      note.textContent = `${skipped} steps skipped${repeated > 0 ? `, ${repeated} batches repeated` : ""}`;
    }
  }
  if (state.samples) digits($("samples"), state.samples, SIDE);
}

/** Handles an event by something that takes time. */
const handle = (work) => (...given) => Promise.resolve(work(...given)).catch(trouble);

const lacking = lacks();
if (lacking) {
  trouble(new Trouble(lacking));
  $("status").textContent = "";
} else {
  // A slider would replace an invalid number by its middle.
  if (/^-?\d+$/.test(asked.get("loss") ?? "")) $("magnitude").value = asked.get("loss");
  $("power").textContent = spoken(magnitude());
  $("run").addEventListener("click", handle(() => (state.running ? stop() : run())));
  $("anew").addEventListener("click", handle(begin));
  $("site").addEventListener("change", draw);
  $("magnitude").addEventListener("input", handle(() => {
    $("power").textContent = spoken(magnitude());
    return Promise.all(state.all.map(({ training }) => training.ask({ ask: "magnitude", magnitude: magnitude() })));
  }));
  let waiting = false;
  pad($("pad"), $("wipe"), handle(async (strokes) => {
    state.strokes = strokes;
    if (waiting) return;
    waiting = true;
    await classify().finally(() => (waiting = false));
  }));
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  handle(begin)();
}
