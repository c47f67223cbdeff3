// Waiting of a case for its device: its whole stack is suspended, and the worker's event loop continues.

let [woken, resume] = [false, null];

export function gs_woken() {
  woken = true;
  resume?.();
}

export const gs_wait = new WebAssembly.Suspending(async () => {
  if (!woken) await new Promise((resolve) => (resume = resolve));
  [woken, resume] = [false, null];
});
