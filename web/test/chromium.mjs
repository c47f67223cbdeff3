// Chromium without a window, by its own protocol over a pipe: no packages are needed.
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";

const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".wasm": "application/wasm" };

/** Flags with which it has WebGPU without a GPU. */
export const WEBGPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

/** Serves a folder's files, and an empty page as `blank`; its address, and how to end it. */
export async function serve(folder) {
  const server = createServer(async (request, answer) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname === "/blank") return answer.setHeader("content-type", "text/html").end("<!doctype html>");
    const path = join(folder, normalize(pathname === "/" ? "/index.html" : pathname));
    try {
      const bytes = await readFile(path);
      answer.setHeader("content-type", TYPES[extname(path)] ?? "application/octet-stream").end(bytes);
    } catch {
      answer.writeHead(404).end();
    }
  }).listen(0, "127.0.0.1");
  await new Promise((listens) => server.on("listening", listens));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

/** A browser with one page. */
export class Browser {
  #process;
  #profile = mkdtempSync(join(tmpdir(), "chromium-"));
  #waiting = new Map();
  #listeners = [];
  #last = 0;
  #rest = "";
  #session;
  /** Messages of the page's console. */
  said = [];

  static async start(flags = []) {
    const browser = new Browser();
    const all = ["--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-pipe", `--user-data-dir=${browser.#profile}`];
    const pipes = { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] };
    browser.#process = spawn(process.env.CHROMIUM ?? "chromium", [...all, ...flags, "about:blank"], pipes);
    browser.#process.on("exit", () => {
      for (const { reject } of browser.#waiting.values()) reject(new Error("Chromium has ended"));
    });
    browser.#process.stdio[4].on("data", (bytes) => browser.#read(bytes));
    browser.#process.stdio[3].on("error", () => {});
    const { targetInfos } = await browser.#send("Target.getTargets");
    const { targetId } = targetInfos.find(({ type }) => type === "page");
    ({ sessionId: browser.#session } = await browser.#send("Target.attachToTarget", { targetId, flatten: true }));
    for (const domain of ["Page", "Runtime"]) await browser.send(`${domain}.enable`);
    return browser;
  }

  #read(bytes) {
    const parts = (this.#rest + bytes).split("\0");
    this.#rest = parts.pop();
    for (const { id, result, error, method, params } of parts.map((part) => JSON.parse(part))) {
      if (id === undefined) {
        if (method === "Runtime.consoleAPICalled") this.said.push(params.args.map((one) => one.value ?? one.description).join(" "));
        if (method === "Runtime.exceptionThrown") this.said.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
        this.#listeners = this.#listeners.filter((listener) => !listener(method));
        continue;
      }
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) reject(new Error(error.message));
      else resolve(result);
    }
  }

  #send(method, params = {}, sessionId = undefined) {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  /** A command of the protocol for the page. */
  send(method, params) {
    return this.#send(method, params, this.#session);
  }

  /** Opens an address and waits until it is loaded. */
  async open(url) {
    const loaded = new Promise((resolve) => this.#listeners.push((method) => method === "Page.loadEventFired" && (resolve(), true)));
    await this.send("Page.navigate", { url });
    await loaded;
  }

  /** The value of an expression in the page, a promise's too. */
  async value(expression) {
    const answer = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    const { result, exceptionDetails } = answer;
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression, seconds = 60) {
    const end = Date.now() + 1000 * seconds;
    while (!(await this.value(expression))) {
      if (Date.now() > end) throw new Error(`not within ${seconds} s: ${expression}\n${this.said.join("\n")}`);
      await new Promise((later) => setTimeout(later, 50));
    }
  }

  async close() {
    const gone = new Promise((resolve) => this.#process.on("exit", resolve));
    this.#send("Browser.close").catch(() => {});
    await gone;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}
