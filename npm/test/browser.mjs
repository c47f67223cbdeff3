// The installed package in Chromium: a page loads it as browsers do and stores a gradient. Prints what the page says; exits
// with 1 if that is not what Node says.
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { Site, Step, instructionSet } from "gradscale";

const PAGE = `<!doctype html><meta charset="utf-8"><pre id="said">nothing</pre><script type="module">
const said = document.getElementById("said");
try {
  const { Site, Step, encode, instructionSet } = await import("/node_modules/gradscale/js/browser.js");
  const { halves, exponent } = new Step([new Site()]).store(Float32Array.of(1e-9, -3e-9));
  said.textContent = [instructionSet(), exponent, ...halves].join(" ");
  try { encode("x", 1); } catch (error) { said.textContent += " " + error.status; }
} catch (error) { said.textContent = String(error.stack); }
</script>`;
const TYPES = { js: "text/javascript", wasm: "application/wasm" };

const server = createServer(async (request, answer) => {
  if (request.url === "/") return answer.setHeader("content-type", "text/html").end(PAGE);
  try {
    const bytes = await readFile(new URL(`.${request.url}`, import.meta.url));
    answer.setHeader("content-type", TYPES[request.url.split(".").pop()] ?? "text/plain").end(bytes);
  } catch {
    answer.writeHead(404).end();
  }
}).listen(0, "127.0.0.1");
await new Promise((listens) => server.on("listening", listens));

const url = `http://127.0.0.1:${server.address().port}/`;
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom", url];
const page = await new Promise((ends) => execFile("chromium", flags, { timeout: 120_000 }, (_, output) => ends(output)));
server.close();
const said = /<pre id="said">([^]*)<\/pre>/.exec(page)?.[1];
const { halves, exponent } = new Step([new Site()]).store(Float32Array.of(1e-9, -3e-9));
const want = [instructionSet(), exponent, ...halves, "GS_CHOICE"].join(" ");
console.log(`chromium: ${said}`);
if (said !== want) throw new Error(`not ${want}`);
