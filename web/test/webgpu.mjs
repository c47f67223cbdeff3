// The built page's trainings on WebGPU: the same numbers whatever the loss is multiplied by, and near those of WebAssembly.
//
//   webgpu.mjs FOLDER
import assert from "node:assert/strict";
import { WEBGPU, Browser, serve } from "./chromium.mjs";

const STEPS = 20;
const server = await serve(process.argv[2]);
const browser = await Browser.start(WEBGPU);
/** The report of a training by `gs` after some steps, and the share of digits that it knows. */
async function trained(device, magnitude) {
  return browser.value(`(async () => {
    const { Training } = await import("/training.js");
    const training = new Training("gs");
    const { device } = await training.ask({ ask: "open", method: "gs", seed: 1, magnitude: ${magnitude}, device: "${device}" });
    const report = await training.ask({ ask: "steps", count: ${STEPS} });
    const { right } = await training.ask({ ask: "score" });
    training.end();
    return { device, right, loss: report.loss, scales: report.sites.map(({ scale }) => scale) };
  })()`);
}
try {
  await browser.open(`${server.url}blank`);
  const plain = await trained("webgpu", 0);
  assert.match(plain.device, /webgpu/);
  const small = await trained("webgpu", -35);
  assert.equal(small.loss, plain.loss);
  assert.equal(small.right, plain.right);
  assert.deepEqual(small.scales, plain.scales.map((scale) => scale + 35));
  const beside = await trained("wasm", 0);
  assert.match(beside.device, /CPU/);
  const gflops = await browser.value(`import("/training.js").then(async ({ Training, speed }) => {
    const training = new Training("gs");
    await training.ask({ ask: "open", method: "gs", seed: 1, magnitude: 0, device: "webgpu" });
    return speed(training).finally(() => training.end());
  })`);
  assert.ok(gflops > 0 && Number.isFinite(gflops), `${gflops} GFLOP/s`);
  assert(Math.abs(beside.loss - plain.loss) < 0.02, `${beside.loss} beside ${plain.loss}`);
  const chosen = await browser.value(`import("/training.js").then(({ device }) => Promise.all([device("webgpu"), device("wasm")]))`);
  assert.deepEqual(chosen, ["webgpu", "wasm"]);
  assert.deepEqual(browser.said, []);
  console.log(`${plain.device}: the loss over ${STEPS} steps is ${plain.loss}, times 2^-35 too; ${beside.device}: ${beside.loss}`);
} finally {
  await browser.close();
  server.close();
}
