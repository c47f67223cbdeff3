// Compiles every text of a folder with Chromium's compiler (Tint), and reports its messages.
//
//   tint.mjs FOLDER              as modules: the language and all its checks
//   tint.mjs FOLDER --pipelines  also as pipelines, with 2 for each constant, as far as the device binds so many buffers
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { WEBGPU, Browser, serve } from "./chromium.mjs";

const [, , folder, pipelines] = process.argv;
const files = readdirSync(folder).filter((name) => name.endsWith(".wgsl"));
if (files.length === 0) throw new Error(`${folder} has no kernels`);

// Runs in the page.
async function compile(name, text, pipelines) {
  const { device } = window;
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code: text });
  const { messages } = await module.getCompilationInfo();
  const said = messages.map(({ type, lineNum, message }) => `${type}, line ${lineNum}: ${message}`);
  const failed = messages.some(({ type }) => type === "error");
  if (pipelines && !failed) {
    // A binding may be declared in several windows.
    const buffers = new Set(text.match(/@binding\(\d+\) var<storage/g)).size;
    if (buffers > device.limits.maxStorageBuffersPerShaderStage) said.push("left out");
    else {
      const names = [...text.matchAll(/^(?:@id\(\d+\) )?override (\w+)/gm)].map(([, name]) => name);
      const constants = Object.fromEntries(names.map((name) => [name, name === "WINDOW" ? 27 : 2]));
      const compute = { module, entryPoint: "main", constants };
      await device.createComputePipelineAsync({ layout: "auto", compute }).catch(({ message }) => said.push(message));
    }
  }
  const error = await device.popErrorScope();
  if (error && said.length === 0) said.push(error.message);
  return said;
}

const server = await serve(folder);
const browser = await Browser.start(WEBGPU);
try {
  await browser.open(`${server.url}blank`);
  const found = await browser.value(`(async () => {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) return null;
    const features = ["subgroups"].filter((name) => adapter.features.has(name));
    const most = adapter.limits.maxStorageBuffersPerShaderStage;
    window.device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits: { maxStorageBuffersPerShaderStage: most } });
    window.compile = ${compile};
    return { features, name: adapter.info.description || adapter.info.vendor };
  })()`);
  if (!found) throw new Error("Chromium has no WebGPU adapter");
  const broken = `@group(0) @binding(0) var<storage, read_write> a: array<u32>;
    @compute @workgroup_size(2) fn main(@builtin(local_invocation_index) i: u32) { if a[i] == 0u { workgroupBarrier(); } }`;
  const said = await browser.value(`compile("broken", ${JSON.stringify(broken)})`);
  if (!said.some((line) => line.includes("uniform"))) throw new Error(`a barrier that not all reach was not found: ${said}`);

  let [compiled, left, failed] = [0, 0, 0];
  for (const name of files) {
    if (name.includes("subgroups") && !found.features.includes("subgroups")) {
      left++;
      continue;
    }
    const text = readFileSync(join(folder, name), "utf8");
    const lines = await browser.value(`compile(${JSON.stringify(name)}, ${JSON.stringify(text)}, ${Boolean(pipelines)})`);
    if (lines.length === 0) compiled++;
    else if (lines[0] === "left out") left++;
    else {
      failed++;
      console.log(`${name}: ${lines.join("\n    ")}`);
    }
  }
  const what = pipelines ? "pipelines" : "modules";
  console.log(`Tint, ${found.name}: ${compiled} of ${files.length} ${what} without a word, ${left} left out, ${failed} failed`);
  process.exitCode = failed > 0 || compiled === 0 ? 1 : 0;
} finally {
  await browser.close();
  server.close();
}
