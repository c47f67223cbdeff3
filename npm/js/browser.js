// For browsers, workers and bundlers. Both files are named in full, because bundlers search for such names.
import { hasSimd, start } from "./library.js";

const file = hasSimd()
  ? new URL("../gradscale-simd128.wasm", import.meta.url)
  : new URL("../gradscale.wasm", import.meta.url);
const answer = await fetch(file);
if (!answer.ok) throw new Error(`gradscale: cannot load ${file}: ${answer.status} ${answer.statusText}`);
// Not compiled while it streams, because that requires a media type which not every file server sends.
start(await WebAssembly.compile(await answer.arrayBuffer()));

export * from "./index.js";
