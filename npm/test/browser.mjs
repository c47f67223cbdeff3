// The installed package in Chromium: a page loads it as browsers do, and stores a gradient. Prints the page's result;
// exits with 1 if it differs from Node's.
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { Site, Step, instructionSet } from "gradscale";

const PAGE = `<!doctype html><meta charset="utf-8"><script type="module">
let said;
try {
  const { Site, Step, encode, instructionSet } = await import("/node_modules/gradscale/js/browser.js");
  const { halves, exponent } = new Step([new Site()]).store(Float32Array.of(1e-9, -3e-9));
  said = [instructionSet(), exponent, ...halves].join(" ");
  try { encode("x", 1); } catch (error) { said += " " + error.status; }
} catch (error) { said = String(error.stack); }
await fetch("/said", { method: "POST", body: said });
</script>`;
const TYPES = { js: "text/javascript", wasm: "application/wasm" };

let says;
const told = new Promise((ends) => (says = ends));
const server = createServer(async (request, answer) => {
  if (request.url === "/") return answer.setHeader("content-type", "text/html").end(PAGE);
  if (request.url === "/said") {
    says(await text(request));
    return answer.end();
  }
  try {
    const bytes = await readFile(new URL(`.${request.url}`, import.meta.url));
    answer.setHeader("content-type", TYPES[request.url.split(".").pop()] ?? "text/plain").end(bytes);
  } catch {
    answer.writeHead(404).end();
  }
}).listen(0, "127.0.0.1");
await new Promise((listens) => server.on("listening", listens));

// The browser stays open until the page has reported, however slow the machine is.
const profile = await mkdtemp(join(tmpdir(), "gradscale-"));
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", `--user-data-dir=${profile}`];
const chromium = spawn("chromium", [...flags, `http://127.0.0.1:${server.address().port}/`], { stdio: "ignore" });
const ended = new Promise((ends) => chromium.on("exit", ends));
const late = setTimeout(() => says("nothing, for two minutes"), 120_000);
const said = await Promise.race([told, ended.then(() => "nothing: it has ended")]);
clearTimeout(late);
chromium.kill();
await ended;
server.closeAllConnections();
server.close();
await rm(profile, { recursive: true, force: true, maxRetries: 5 });
const { halves, exponent } = new Step([new Site()]).store(Float32Array.of(1e-9, -3e-9));
const want = [instructionSet(), exponent, ...halves, "GS_ERROR_ENUM"].join(" ");
console.log(`chromium: ${said}`);
if (said !== want) throw new Error(`not ${want}`);
