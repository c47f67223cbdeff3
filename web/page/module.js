// The library in WebAssembly. Loaded by each worker for itself.

/** A way to ask a training questions, which is answered by promises where it trains on WebGPU. None is open yet. */
export async function open(device) {
  if (device === "webgpu") {
    const { default: load, ask } = await import("./webgpu/gradscale_web.js");
    await load();
    return async (question) => JSON.parse(await ask(JSON.stringify(question)));
  }
  const file = new URL("gradscale_web.wasm", import.meta.url);
  const answer = await fetch(file);
  if (!answer.ok) throw new Error(`cannot load ${file.pathname}: ${answer.status} ${answer.statusText}`);
  // Not instantiated while it streams, because that requires a media type which not every file server sends.
  const { instance } = await WebAssembly.instantiate(await answer.arrayBuffer());
  const { memory, gs_web_room, gs_web_ask, gs_web_answer } = instance.exports;
  return (question) => {
    const bytes = new TextEncoder().encode(JSON.stringify(question));
    // Each call may let memory grow: its buffer is another one then.
    const room = gs_web_room(bytes.length);
    new Uint8Array(memory.buffer, room, bytes.length).set(bytes);
    const length = gs_web_ask();
    return JSON.parse(new TextDecoder().decode(new Uint8Array(memory.buffer, gs_web_answer(), length)));
  };
}
