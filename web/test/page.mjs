// The built page in Chromium, as a visitor sees it: on a desktop, on a phone, and where a feature is missing.
//
//   page.mjs FOLDER            all of it
//   page.mjs FOLDER --lacking  what it says where something is missing, which needs no WebAssembly
import assert from "node:assert/strict";
import { Browser, serve } from "./chromium.mjs";

const [, , folder, brief] = process.argv;
const server = await serve(folder);

/** Opens the page in a browser of its own, does something there, and expects nothing in its console. */
async function visit(query, { width = 1280, height = 800, mobile = false, calm = false, before = "" }, work) {
  const browser = await Browser.start(["--disable-gpu"]);
  try {
    await browser.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: mobile ? 2 : 1, mobile });
    if (mobile) await browser.send("Emulation.setTouchEmulationEnabled", { enabled: true });
    if (calm) await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-reduced-motion", value: "reduce" }] });
    if (before) await browser.send("Page.addScriptToEvaluateOnNewDocument", { source: before });
    await browser.open(query.startsWith("file:") ? query : server.url + query);
    await work(browser);
    assert.deepEqual(browser.said, []);
  } finally {
    await browser.close();
  }
}

const text = (browser, id) => browser.value(`document.getElementById("${id}").innerText`);
const click = (browser, id) => browser.value(`document.getElementById("${id}").click()`);
const ready = (browser) => browser.until(`!document.getElementById("run").disabled || !document.getElementById("trouble").hidden`);
const step = `Number(/[Ss]tep (\\d+)/.exec(document.getElementById("status").textContent)?.[1] ?? 0)`;
/** The row of each method in the table: label, loss, score and scale. */
const rows = (browser) => browser.value(`[...document.querySelectorAll("#methods tbody tr")].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))`);
/** The loss of each method. */
async function losses(browser) {
  const [fp32, fp16, dynamic, gs] = (await rows(browser)).map(([, loss]) => Number(loss));
  return { fp32, fp16, dynamic, gs };
}
const slide = (browser, to) => browser.value(`{ const slider = document.getElementById("magnitude"); slider.value = ${to}; slider.dispatchEvent(new Event("input")); }`);
/** Returns each network's classification. */
const seen = (browser) => browser.value(`[...document.querySelectorAll("#answers tbody tr")].map((row) => row.cells[1].innerText)`);
const classified = (browser, digit) => browser.until(`document.querySelector("#answers tbody tr:last-child td:nth-child(2)").innerText === "${digit}"`);

/** Presses a key on whatever has the focus. */
async function press(browser, key, code = key) {
  const printed = key.length === 1 ? { text: key } : key === "Enter" ? { text: "\r" } : {};
  const windowsVirtualKeyCode = { Tab: 9, Enter: 13, Delete: 46 }[key] ?? key.charCodeAt(0);
  for (const type of ["keyDown", "keyUp"]) {
    await browser.send("Input.dispatchKeyEvent", { type, key, code, windowsVirtualKeyCode, ...(type === "keyDown" && printed) });
  }
}

/** Presses Tab until an element has the focus, and fails if no series of a few does. */
async function tab(browser, id) {
  for (let i = 0; i < 20; i++) {
    await press(browser, "Tab");
    if ((await browser.value("document.activeElement.id")) === id) return;
  }
  assert.fail(`Tab does not reach ${id}`);
}

/** All that belongs to the first screen is in view without scrolling. */
async function fits(browser) {
  const outside = await browser.value(`["run", "anew", "broken", "magnitude", "losses", "scales", "methods", "verdict", "copy", "status"].filter((id) => {
    const { left, top, right, bottom, height } = document.getElementById(id).getBoundingClientRect();
    return height === 0 || left < 0 || top < 0 || right > innerWidth || bottom > innerHeight;
  })`);
  assert.deepEqual([outside, await browser.value("scrollY"), await browser.value(NARROW)], [[], 0, true]);
}

async function draws(browser, line, touch) {
  const [left, top, size] = await browser.value(`(() => {
    const pad = document.getElementById("pad");
    pad.scrollIntoView({ block: "center" });
    const { left, top, width } = pad.getBoundingClientRect();
    return [left, top, width];
  })()`);
  const points = line.map(([x, y]) => ({ x: left + x * size, y: top + y * size }));
  for (const [i, point] of points.entries()) {
    if (touch) await browser.send("Input.dispatchTouchEvent", { type: i === 0 ? "touchStart" : "touchMove", touchPoints: [point] });
    else await browser.send("Input.dispatchMouseEvent", { type: i === 0 ? "mousePressed" : "mouseMoved", button: "left", clickCount: 1, ...point });
  }
  if (touch) await browser.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
  else await browser.send("Input.dispatchMouseEvent", { type: "mouseReleased", button: "left", ...points.at(-1) });
}

/** Waits for the sentence below the losses, which is of the last step alone. */
const said = (browser, words) => browser.until(`${words}.test(document.getElementById("verdict").innerText)`, 20);

const SEVEN = [[0.2, 0.2], [0.8, 0.18], [0.45, 0.9]];
const NARROW = "document.documentElement.scrollWidth <= innerWidth";

try {
  for (const [before, want] of [
    ["delete window.Worker", /web workers/],
    ["delete window.WebAssembly", /support WebAssembly/],
    ["WebAssembly.validate = () => false", /no SIMD128/],
  ]) {
    await visit("", { before }, async (browser) => {
      await ready(browser);
      assert.match(await text(browser, "trouble"), want);
      assert(await browser.value(`document.getElementById("run").disabled`));
    });
  }
  const file = new URL(`file://${folder}/index.html`).href;
  await visit(file, {}, async (browser) => {
    assert.match(await text(browser, "trouble"), /http\.server/);
    // The browser itself also reports the refusal.
    browser.said = [];
  });

  if (!brief) {
    // The page trains by itself, where methods differ.
    await visit("", {}, async (browser) => {
      await browser.until(`${step} >= 20`);
      await said(browser, /^FP16 without scale learns nothing at this loss: .* FP32, dynamic loss scale as in PyTorch and gradscale learn\.$/);
      await fits(browser);
      // The switch, by keyboard: the dynamic scale falls once for each time that the image came, until nothing is left.
      await browser.value("document.activeElement.blur()");
      await tab(browser, "run");
      await tab(browser, "broken");
      await press(browser, " ", "Space");
      await browser.until(`document.getElementById("broken").checked && document.getElementById("verdict").innerText.includes("it learns nothing more")`, 300);
      await fits(browser);
      const stopped = await browser.value(step);
      await browser.until(`${step} >= 200`, 300);
      await browser.value(`document.getElementById("run").focus()`);
      await press(browser, "Enter");
      assert.equal(await text(browser, "run"), "Train");
      await browser.until(`document.getElementById("said").innerText === document.getElementById("verdict").innerText`);
      const sentence = await text(browser, "verdict");
      const [, times, least] = /^The broken image came (\d+) times: the dynamic loss scale fell from 2¹⁶ to (\S+), its gradients became zero/.exec(sentence);
      const table = await rows(browser);
      const powers = await browser.value(`import("./methods.js").then(({ spoken }) => [spoken(16 - ${times}), spoken(-24)])`);
      // The engine's scale ends at 2^-24.
      assert(powers.includes(least) && table[2][3] === least, `${sentence} ${JSON.stringify(table)}`);
      const bad = await losses(browser);
      assert(Math.abs(bad.gs - bad.fp32) < 0.05 && bad.gs < 0.5 && bad.dynamic > 1, JSON.stringify(bad));
      await fits(browser);
      // The button copies what is on the screen.
      await browser.send("Browser.grantPermissions", { permissions: ["clipboardReadWrite", "clipboardSanitizedWrite"] });
      await browser.send("Page.bringToFront");
      await click(browser, "copy");
      await browser.until(`document.getElementById("copy").innerText === "Copied"`);
      const copy = await browser.value("navigator.clipboard.readText()");
      const lines = copy.split("\n").filter((line) => line.startsWith("| ")).slice(1).map((line) => line.split("|").map((cell) => cell.trim()));
      assert.deepEqual(lines.map(([, label, loss, right, scale]) => [label, Number(loss).toFixed(3), right, scale]), table);
      assert.match(copy, new RegExp(`^gradscale in the browser: step ${await browser.value(step)}, seed 1, loss × 2⁻²⁰, one broken image in 200 digits, in ${times} batches`));
      assert.match(copy, /\?loss=-20&broken=200$/m);
      console.log(`desktop: the dynamic scale was gone by step ${stopped}\n${copy}`);
      // Where the browser does not let pages copy, the text is shown and selected.
      await browser.value(`navigator.clipboard.writeText = () => Promise.reject(new Error("not allowed"))`);
      await click(browser, "copy");
      await browser.until(`!document.getElementById("numbers").hidden`);
      const shown = await browser.value(`{ const { id, value, selectionStart, selectionEnd } = document.activeElement; ({ id, chosen: value.slice(selectionStart, selectionEnd) }); }`);
      assert.deepEqual(shown, { id: "numbers", chosen: copy });
      // Switched off, all begin anew.
      await click(browser, "broken");
      await said(browser, /^FP16 without scale learns nothing at this loss/);
    });
    await visit("?loss=-40", {}, async (browser) => {
      await ready(browser);
      assert.equal(await text(browser, "power"), "2⁻⁴⁰");
      await browser.until(`${step} >= 200`, 300);
      const small = await losses(browser);
      assert(small.gs < 0.5 && Math.abs(small.gs - small.fp32) < 0.1, JSON.stringify(small));
      assert(small.fp16 > 2.2 && small.dynamic > 2.2, JSON.stringify(small));
      // Only the scale of one of them follows.
      const scales = await browser.value(`[...document.querySelectorAll(".panel:not([hidden]) h3")].map((one) => one.innerText)`);
      assert.match(scales[0], /FP16 without scale\s*scale 1, 100\.0 % zeros/);
      assert.match(scales[1], /dynamic loss scale as in PyTorch\s*scale 2¹⁶, 100\.0 % zeros/);
      assert.match(scales[2], /gradscale\s*scale 2[⁵⁶]\S, \d\d?\.\d % zeros/);
      await said(browser, /^FP16 without scale and dynamic loss scale as in PyTorch learn nothing .* FP32 and gradscale learn\.$/);
      await draws(browser, SEVEN);
      await classified(browser, 7);
      const all = await seen(browser);
      assert.deepEqual([all[0], all[3]], ["7", "7"]);
      await click(browser, "wipe");
      await classified(browser, "–");
      // Without a mouse: a key writes the digit.
      await browser.value(`document.getElementById("pad").focus()`);
      await press(browser, "1");
      await classified(browser, 1);
      await press(browser, "Delete");
      await classified(browser, "–");
      // The others learn as soon as the loss is large enough, and nothing is lost on the way.
      await slide(browser, 0);
      const from = await browser.value(step);
      await browser.until(`${step} >= ${from + 200}`, 300);
      const large = await losses(browser);
      assert(Object.values(large).every((loss) => loss < 0.5), JSON.stringify(large));
      await said(browser, /^All four learn/);
      await click(browser, "anew");
      await browser.until(`${step} > 0 && ${step} < 100`);
      assert(await browser.value(NARROW));
      console.log(`desktop: loss × 2^-40: ${JSON.stringify(small)}, then × 1: ${JSON.stringify(large)}`);
    });
    await visit("?loss=some&broken=7", {}, async (browser) => {
      await ready(browser);
      assert.equal(await text(browser, "power"), "2⁻²⁰");
      assert.equal(await browser.value(`document.getElementById("broken").checked`), false);
    });
    // Visitors who want little motion start the training, and see a drawing a second.
    await visit("?broken=200", { width: 390, height: 844, mobile: true, calm: true }, async (browser) => {
      await browser.until(`document.getElementById("status").innerText.startsWith("Ready: CPU, SIMD128")`);
      await fits(browser);
      await new Promise((later) => setTimeout(later, 500));
      assert.match(await text(browser, "verdict"), /^Press Train/);
      await browser.value(`window.drawn = 0; { const clear = CanvasRenderingContext2D.prototype.clearRect; CanvasRenderingContext2D.prototype.clearRect = function (...given) { drawn += this.canvas.id === "losses"; return clear.apply(this, given); }; window.began = performance.now(); }`);
      await click(browser, "run");
      await browser.until(`document.getElementById("verdict").innerText.includes("it learns nothing more")`, 300);
      const [drawn, seconds] = await browser.value(`[drawn, (performance.now() - began) / 1000]`);
      assert(drawn >= 1 && drawn <= seconds + 1, `${drawn} drawings in ${seconds} s`);
      await fits(browser);
      await browser.until(`${step} >= 200`, 300);
      await draws(browser, SEVEN, true);
      await classified(browser, 7);
      await browser.send("Emulation.setDeviceMetricsOverride", { width: 360, height: 740, deviceScaleFactor: 2, mobile: true });
      await browser.until(`innerWidth === 360`);
      assert(await browser.value(NARROW), "the page is wider than the phone");
      console.log(`phone: one broken image: ${JSON.stringify(await losses(browser))}`);
    });
  }
  console.log("what is missing is said");
} finally {
  server.close();
}
