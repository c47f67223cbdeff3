// The installed package with the WebAssembly file that GRADSCALE_MODULE names.
import { readFileSync } from "node:fs";
import { start } from "./node_modules/gradscale/js/library.js";

export * from "gradscale";
const file = process.env.GRADSCALE_MODULE;
if (file) start(new WebAssembly.Module(readFileSync(new URL(`node_modules/gradscale/${file}.wasm`, import.meta.url))));
