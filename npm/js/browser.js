// In browsers, workers and bundlers. Both files are named in full: that is how bundlers find them.
import { hasSimd, start } from "./library.js";

const file = hasSimd()
  ? new URL("../gradscale-simd128.wasm", import.meta.url)
  : new URL("../gradscale.wasm", import.meta.url);
const answer = await fetch(file);
if (!answer.ok) throw new Error(`gradscale: ${file} is not there: ${answer.status} ${answer.statusText}`);
// Not while it streams: that wants a media type which not every server of files sends.
start(await WebAssembly.compile(await answer.arrayBuffer()));

export * from "./index.js";
