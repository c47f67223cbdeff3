// The built page in Chromium, as a visitor sees it: on a desktop, on a phone, and where a feature is missing.
//
//   page.mjs FOLDER            all of it
//   page.mjs FOLDER --lacking  what it says where something is missing, which needs no WebAssembly
import assert from "node:assert/strict";
import { Browser, serve } from "./chromium.mjs";

const [, , folder, brief] = process.argv;
const server = await serve(folder);

/** Opens the page in a browser of its own, does something there, and expects nothing in its console. */
async function visit(query, { width = 1100, height = 900, mobile = false, before = "" }, work) {
  const browser = await Browser.start(["--disable-gpu"]);
  try {
    await browser.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: mobile ? 2 : 1, mobile });
    if (mobile) await browser.send("Emulation.setTouchEmulationEnabled", { enabled: true });
    if (before) await browser.send("Page.addScriptToEvaluateOnNewDocument", { source: before });
    await browser.open(query.startsWith("file:") ? query : server.url + query);
    await work(browser);
    assert.deepEqual(browser.said, []);
  } finally {
    await browser.close();
  }
}

const text = (browser, id) => browser.value(`document.getElementById("${id}").innerText`);
const ready = (browser) => browser.until(`!document.getElementById("run").disabled || !document.getElementById("trouble").hidden`);
const step = `Number(/Step (\\d+)/.exec(document.getElementById("status").textContent)?.[1] ?? 0)`;
/** The loss of each method. */
const losses = async (browser) =>
  Object.fromEntries((await text(browser, "legend")).trim().split(/\n/).map((line) => line.trim().split(/\s+/)).map(([name, loss]) => [name, Number(loss)]));
const slide = (browser, to) => browser.value(`{ const slider = document.getElementById("magnitude"); slider.value = ${to}; slider.dispatchEvent(new Event("input")); }`);
/** Returns each network's classification. */
const seen = (browser) => browser.value(`[...document.querySelectorAll("#answers tbody tr")].map((row) => row.cells[2].innerText)`);

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
    await visit("?loss=-40", {}, async (browser) => {
      await ready(browser);
      assert.equal(await text(browser, "power"), "2⁻⁴⁰");
      await browser.value(`document.getElementById("run").click()`);
      await browser.until(`${step} >= 200`, 300);
      const small = await losses(browser);
      assert(small.gs < 0.5 && Math.abs(small.gs - small.fp32) < 0.1, JSON.stringify(small));
      assert(small.fp16 > 2.2 && small.dynamic > 2.2, JSON.stringify(small));
      // Only the scale of one of them follows.
      const scales = await browser.value(`[...document.querySelectorAll(".panel:not([hidden]) h3")].map((one) => one.innerText)`);
      assert.match(scales[0], /fp16\s*scale 1, 100\.0 % zeros/);
      assert.match(scales[1], /dynamic\s*scale 2¹⁶, 100\.0 % zeros/);
      assert.match(scales[2], /gs\s*scale 2[⁵⁶]\S, \d\d?\.\d % zeros/);
      await said(browser, /^fp16 and dynamic learn nothing .* fp32 and gs learn\.$/);
      await draws(browser, SEVEN);
      await browser.until(`document.querySelector("#answers tbody tr:last-child td:nth-child(3)").innerText === "7"`);
      const all = await seen(browser);
      assert.deepEqual([all[0], all[3]], ["7", "7"]);
      await browser.value(`document.getElementById("wipe").click()`);
      await browser.until(`document.querySelector("#answers tbody tr:last-child td:nth-child(3)").innerText === "–"`);
      // The others learn as soon as the loss is large enough, and nothing is lost on the way.
      await slide(browser, 0);
      const from = await browser.value(step);
      await browser.until(`${step} >= ${from + 200}`, 300);
      const large = await losses(browser);
      assert(Object.values(large).every((loss) => loss < 0.5), JSON.stringify(large));
      await said(browser, /^All four learn/);
      await browser.value(`document.getElementById("anew").click()`);
      await browser.until(`document.getElementById("status").innerText.startsWith("Ready: CPU, SIMD128")`);
      assert(await browser.value(NARROW));
      console.log(`desktop: loss × 2^-40: ${JSON.stringify(small)}, then × 1: ${JSON.stringify(large)}`);
    });
    await visit("?loss=some", {}, async (browser) => {
      await ready(browser);
      assert.equal(await text(browser, "power"), "1");
    });
    await visit("?loss=-30", { width: 360, height: 740, mobile: true }, async (browser) => {
      await ready(browser);
      assert(await browser.value(NARROW), "the page is wider than the phone");
      await browser.value(`document.getElementById("run").click()`);
      await browser.until(`${step} >= 200`, 300);
      await draws(browser, SEVEN, true);
      await browser.until(`document.querySelector("#answers tbody tr:last-child td:nth-child(3)").innerText === "7"`);
      assert(await browser.value(NARROW), "the page is wider than the phone");
      console.log(`phone: loss × 2^-30: ${JSON.stringify(await losses(browser))}`);
    });
  }
  console.log("what is missing is said");
} finally {
  server.close();
}
