// What js/node.js takes of Node, so that checking it needs no types of Node's.
declare module "node:fs" {
  export function readFileSync(path: URL): Uint8Array<ArrayBuffer>;
}
