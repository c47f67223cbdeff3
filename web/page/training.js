// A training in a worker, as the page sees it.

/** Error with a sentence for the visitor. */
export class Trouble extends Error {}

/** Returns the missing features of this browser, or nothing. */
export function lacks() {
  if (typeof Worker !== "function") return "This browser does not support web workers, which this page needs. Use a newer browser.";
  if (typeof WebAssembly !== "object") return "This browser does not support WebAssembly, or it is disabled. Enable it, or use another browser.";
  // A function with one operation of vectors.
  const vectors = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];
  if (!WebAssembly.validate(Uint8Array.from(vectors))) {
    return "The WebAssembly of this browser has no SIMD128. Use Chrome 91, Firefox 89, Safari 16.4 or a newer browser.";
  }
  return "";
}

/** Returns where the page can train: "webgpu" if a worker gets a GPU, else "wasm"; `wanted` may exclude the GPU. */
export async function device(wanted) {
  if (wanted === "wasm") return "wasm";
  try {
    const adapter = await navigator.gpu?.requestAdapter();
    // A GPU that is imitated by the processor is slower than the processor by itself.
    const real = adapter && !adapter.info?.isFallbackAdapter;
    return adapter && (real || wanted === "webgpu") ? "webgpu" : "wasm";
  } catch {
    return "wasm";
  }
}

/** Returns the speed of a training's device in FP16 products, in GFLOP/s. */
export async function speed(training) {
  const measured = async (size, count) => {
    const start = performance.now();
    await training.ask({ ask: "multiply", size, count });
    return (2 * size ** 3 * count) / ((performance.now() - start) * 1e6);
  };
  // The first product of a size compiles its kernel.
  await measured(256, 1);
  const small = await measured(256, 4);
  // A slow device would take seconds for a larger product.
  if (small < 20) return small;
  await measured(1024, 1);
  return Math.max(small, await measured(1024, 16));
}

/** A worker that trains by one method. */
export class Training {
  #worker;
  #waiting = new Map();
  #last = 0;
  #broken = null;

  constructor(method) {
    this.method = method;
    this.#worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data: { id, answer } }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (answer.said === "error") reject(new Trouble(`${this.method}: ${answer.why}`));
      else resolve(answer);
    };
    this.#worker.onerror = (event) => {
      event.preventDefault?.();
      this.#broken = new Trouble(`${this.method}: the web worker failed${event.message ? `: ${event.message}` : ""}`);
      for (const { reject } of this.#waiting.values()) reject(this.#broken);
      this.#waiting.clear();
    };
  }

  /** The answer to a question of `message.rs`. */
  ask(question) {
    if (this.#broken) return Promise.reject(this.#broken);
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, question });
    });
  }

  end() {
    this.#worker.terminate();
  }
}
