// Declarations of the functions that js/node.js uses of Node, so that a check needs no types of Node's.
declare module "node:fs" {
  export function readFileSync(path: URL): Uint8Array<ArrayBuffer>;
}
