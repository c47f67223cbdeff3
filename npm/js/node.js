// For Node: loads the module that this engine can run, synchronously, so that `require` works too where it accepts
// modules.
import { readFileSync } from "node:fs";
import { hasSimd, start } from "./library.js";

const file = hasSimd() ? "../gradscale-simd128.wasm" : "../gradscale.wasm";
start(new WebAssembly.Module(readFileSync(new URL(file, import.meta.url))));

export * from "./index.js";
