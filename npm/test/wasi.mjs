// Runs a program of WASI: node wasi.mjs PROGRAM ARGUMENTS...
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { WASI } from "node:wasi";

// In Node 20 a program's write may collect garbage inside one of V8's fast calls, where that is not allowed: after some
// hundred lines of output it aborts.
setFlagsFromString("--no-turbo-fast-api-calls");

const [, , program, ...args] = process.argv;
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("GRADSCALE_")));
const wasi = new WASI({ version: "preview1", args: [program, ...args], env });
const module = new WebAssembly.Module(readFileSync(program));
process.exitCode = wasi.start(new WebAssembly.Instance(module, wasi.getImportObject()));
