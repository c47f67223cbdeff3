// Runs a program of WASI: node wasi.mjs PROGRAM ARGUMENTS...
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const [, , program, ...args] = process.argv;
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("GRADSCALE_")));
const wasi = new WASI({ version: "preview1", args: [program, ...args], env });
const module = new WebAssembly.Module(readFileSync(program));
process.exitCode = wasi.start(new WebAssembly.Instance(module, wasi.getImportObject()));
