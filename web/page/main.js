// The page: parallel trainings, their results as drawings, and the visitor's settings.
import { digits, histogram, losses, scales } from "./charts.js";
import { METHODS, TESTED, exponents, percent, scale, spoken } from "./methods.js";
import { copied, numbers } from "./numbers.js";
import { pad } from "./pad.js";
import { Training, Trouble, device, lacks, speed } from "./training.js";
import { verdict } from "./verdict.js";

const SIDE = 16;
// Steps between two scores, and points of a line at most.
const [SCORED, POINTS] = [20, 1500];
// Approximate duration of a round in milliseconds.
const ROUND = 80;
// At most so many steps a second, so that the eye can follow, and steps in one go, so that no battery runs empty unseen.
const [SPEED, RUN] = [20, 10000];
// Milliseconds between two drawings for visitors who want little motion, and between two sentences for those who listen.
const [CALM, HEARD] = [1000, 10000];

const $ = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
// `turn` is that of the loop that trains now, or null.
const state = { all: [], turn: null, strokes: [], count: 1, samples: null, events: [], drawn: 0, heard: -HEARD };

const magnitude = () => Number($("magnitude").value);
/** Number of digits of which one is broken, or null. */
const broken = () => ($("broken").checked ? Number($("among").value) : null);
const later = (time) => new Promise((come) => setTimeout(come, time));

function trouble(error) {
  stop();
  $("trouble").hidden = false;
  $("trouble").textContent = error instanceof Trouble ? error.message : `This page failed: ${error.message}. Reload it; if that does not help, please report it.`;
  if (!(error instanceof Trouble)) console.error(error);
}

function stop() {
  state.turn = null;
  $("run").textContent = "Train";
}

/** Creates the entry of a method: its training, and the state of its results. */
function entry({ name, label }, i) {
  const key = `<i style="border-color: var(--${name})" class="${i === 0 ? "whole" : ""}"></i>`;
  const panel = document.createElement("div");
  panel.className = "panel";
  panel.innerHTML = `<h3>${label}<span></span></h3><canvas role="img" aria-label="Histogram of ${label}"></canvas><p></p>`;
  // Values that stay in f32 are not stored as halves.
  panel.hidden = name === "fp32";
  $("panels").append(panel);
  const row = $("methods").tBodies[0].insertRow();
  row.innerHTML = `<th scope="row">${key}${label}</th><td>–</td><td>–</td><td>–</td>`;
  const answer = $("answers").tBodies[0].insertRow();
  answer.innerHTML = `<th scope="row">${label}</th><td>–</td><td></td>`;
  return { name, label, panel, row, answer, training: new Training(name), points: [], report: null, right: null, start: null };
}

/** Sends a request to all trainings, and returns their answers. */
const askAll = (all, question) => Promise.all(all.map(({ training }) => training.ask(question)));

/** Starts all trainings from the beginning, with the settings of slider and switch. False if they were restarted meanwhile. */
async function begin() {
  stop();
  $("trouble").hidden = true;
  for (const one of state.all) one.training.end();
  for (const list of [$("panels"), $("methods").tBodies[0], $("answers").tBodies[0], $("site")]) list.replaceChildren();
  const all = (state.all = METHODS.map(entry));
  state.count = 1;
  state.events = [];
  const ready = await opened(all);
  const { images } = await all[0].training.ask({ ask: "digits", count: 40 });
  if (state.all !== all) return false;
  state.samples = images;
  // Each has a worker, which is one thread.
  state.device = ready[0].device.replace(", 1 threads", "");
  if (state.on === "webgpu") {
    const reached = (state.speed ??= await speed(all[0].training));
    if (state.all !== all) return false;
    state.device += `, ${Number(reached.toPrecision(3))} GFLOP/s in FP16 products`;
  }
  $("status").textContent = `Ready: ${state.device}`;
  for (const id of ["run", "anew", "magnitude", "broken", "among", "copy"]) $(id).disabled = false;
  draw();
  return true;
}

/** Opens all trainings on the GPU, or, where that refuses, on the processor. */
async function opened(all) {
  const open = { ask: "open", seed: 1, magnitude: magnitude(), broken: broken(), device: (state.on ??= await device(asked.get("device"))) };
  try {
    return await Promise.all(all.map(({ name, training }) => training.ask({ ...open, method: name })));
  } catch (error) {
    if (state.on === "wasm") throw error;
    console.warn(`WebGPU: ${error.message}; WebAssembly instead`);
    state.on = "wasm";
    for (const one of all) {
      one.training.end();
      one.training = new Training(one.name);
    }
    return opened(all);
  }
}

/** Trains until it is stopped, or for RUN steps. */
async function run() {
  const all = state.all;
  const turn = (state.turn = {});
  $("run").textContent = "Stop";
  const from = all[0].report?.step ?? 0;
  let [scored, began] = [-SCORED, performance.now()];
  while (state.turn === turn) {
    const start = performance.now();
    const { count } = state;
    const reports = await askAll(all, { ask: "steps", count });
    if (state.all !== all) return;
    reports.forEach((report, i) => took(all[i], report));
    const { step } = reports[0];
    if (step - scored >= SCORED) {
      scored = step;
      await score(all);
      await classify();
    }
    const time = performance.now() - start;
    state.count = Math.max(1, Math.round(Math.min((count * ROUND) / time, (SPEED * ROUND) / 1000)));
    const speed = ((step - from) / (performance.now() - began)) * 1000;
    $("status").textContent = `Step ${step}, ${speed.toFixed(speed < 10 ? 1 : 0)} steps a second, ${state.device}`;
    if (step - from >= RUN && state.turn === turn) {
      stop();
      $("status").textContent = `Stopped at step ${step}; press Train to go on.`;
    }
    // A page that is not in view gets no frames, and so rests.
    await new Promise((shown) => requestAnimationFrame(shown));
    await later((1000 * count) / SPEED - (performance.now() - start));
    const wait = calm.matches && state.turn ? CALM : 0;
    if (state.all === all && performance.now() - state.drawn >= wait) draw();
  }
}

/** Trains from the beginning, so that equal settings give equal numbers. */
async function anew() {
  if (await begin()) await run();
}

/** Stores a report of a training. */
function took(one, report) {
  one.report = report;
  // PyTorch's first scale, unless steps before the broken image have changed it.
  if (report.broken === 0 || one.start === null) one.start = report.loss_scale + report.broken;
  // Before the first intact batch there is no loss yet.
  if (report.broken === report.step) return;
  one.points.push({ step: report.step, loss: report.loss ?? Infinity, exponents: exponents(one) });
  // Every other point of a long line is as good. Their number is odd here, so that the last one stays.
  if (one.points.length > POINTS) one.points = one.points.filter((_, i) => i % 2 === 0);
  const names = report.sites.map(({ name }) => name);
  if ($("site").length === 0 && names.length > 0) {
    $("site").replaceChildren(...names.map((name) => new Option(name)));
    $("site").disabled = false;
  }
}

async function score(all) {
  const scores = await askAll(all, { ask: "score" });
  scores.forEach(({ right }, i) => (all[i].right = Math.round(TESTED * right)));
}

/** Shows each network's classification of the drawing. */
async function classify() {
  const all = state.all;
  if (state.strokes.length === 0) {
    for (const { answer } of all) [answer.cells[1].textContent, answer.cells[2].textContent] = ["–", ""];
    return;
  }
  const answers = await askAll(all, { ask: "classify", strokes: state.strokes });
  if (state.strokes.length === 0) return classify();
  answers.forEach(({ shares }, i) => {
    const best = shares.indexOf(Math.max(...shares));
    all[i].answer.cells[1].textContent = best;
    all[i].answer.cells[2].textContent = percent(shares[best]);
  });
}

/** Marks a change of the settings in the drawings. */
function event(what) {
  const step = state.all[0]?.report?.step ?? 0;
  // A slider that is dragged is one change.
  state.events = [...state.events.filter((one) => one.step !== step), { step, what }];
}

/** Replaces a text if it differs, so that readers of the screen do not repeat it. */
const write = (element, text) => element.textContent === text || (element.textContent = text);

function draw() {
  state.drawn = performance.now();
  losses($("losses"), state.all, state.events);
  scales($("scales"), state.all, state.events);
  const sentence = verdict(state.all);
  write($("verdict"), sentence);
  if (!state.turn || state.drawn - state.heard >= HEARD) {
    state.heard = state.drawn;
    write($("said"), sentence);
  }
  for (const one of state.all) {
    const { name, panel, row, report, points, right } = one;
    const values = [points.length > 0 ? points.at(-1).loss.toFixed(3) : "–", right ?? "–", scale(one)];
    values.forEach((value, i) => write(row.cells[i + 1], String(value)));
    if (panel.hidden) continue;
    const site = report?.sites.find((each) => each.name === $("site").value);
    histogram(panel.querySelector("canvas"), site?.stored ?? [], name);
    write(panel.querySelector("span"), site ? `scale ${spoken(site.scale)}, ${percent(site.flushed)} zeros` : "");
    if (!report) continue;
    const { skipped, repeated } = report;
    write(panel.querySelector("p"), `${skipped} steps skipped${repeated > 0 ? `, ${repeated} batches repeated` : ""}`);
  }
  if (state.samples) digits($("samples"), state.samples, SIDE);
}

/** Handles an event by something that takes time. */
const handle = (work) => (...given) => Promise.resolve(work(...given)).catch(trouble);

/** Copies the numbers, or shows them selected where the browser does not let pages copy. */
async function copy() {
  const address = new URL(location.href);
  address.search = new URLSearchParams({ loss: magnitude(), ...(broken() && { broken: broken() }) });
  const text = numbers(state.all, { magnitude: magnitude(), broken: broken(), device: state.device, address: address.href });
  const done = await copied(text);
  $("numbers").hidden = done;
  $("numbers").value = text;
  if (!done) $("numbers").select();
  $("copy").textContent = done ? "Copied" : "Copy from below";
  await later(2000);
  $("copy").textContent = "Copy numbers";
}

const lacking = lacks();
if (lacking) {
  trouble(new Trouble(lacking));
  $("status").textContent = "";
} else {
  // A slider would replace an invalid number by its middle.
  if (/^-?\d+$/.test(asked.get("loss") ?? "")) $("magnitude").value = asked.get("loss");
  const among = [...$("among").options].find(({ value }) => value === asked.get("broken"));
  if (among) [among.selected, $("broken").checked] = [true, true];
  $("epoch").textContent = $("among").value;
  $("power").textContent = spoken(magnitude());
  $("run").addEventListener("click", handle(() => (state.turn ? stop() : run())));
  $("anew").addEventListener("click", handle(anew));
  $("site").addEventListener("change", draw);
  $("magnitude").addEventListener("input", handle(() => {
    $("power").textContent = spoken(magnitude());
    event(`loss × ${spoken(magnitude())}`);
    return askAll(state.all, { ask: "magnitude", magnitude: magnitude() });
  }));
  $("broken").addEventListener("change", handle(anew));
  $("among").addEventListener("change", handle(() => {
    $("epoch").textContent = $("among").value;
    return broken() ? anew() : undefined;
  }));
  $("copy").addEventListener("click", handle(copy));
  // Trainings that classify now. Those that a restart has ended never answer, so they do not block the next ones.
  let waiting = null;
  pad($("pad"), $("wipe"), handle(async (strokes) => {
    const { all } = state;
    state.strokes = strokes;
    if (waiting === all) return;
    waiting = all;
    await classify().finally(() => {
      if (waiting === all) waiting = null;
    });
  }), handle(async (digit) => {
    const key = Math.floor(performance.now());
    return (await state.all[0].training.ask({ ask: "write", digit, key })).strokes;
  }));
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  handle(async () => {
    // Visitors who want little motion start it themselves.
    if ((await begin()) && !calm.matches) await run();
  })();
}
