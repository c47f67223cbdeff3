// Functions of the page that conformance.mjs calls: a worker with the suite, and requests to it.

let [worker, waiting, last] = [null, new Map(), 0];

function asked(question) {
  return new Promise((resolve) => {
    waiting.set(++last, resolve);
    worker.postMessage({ id: last, ...question });
  });
}

/** A fresh worker: device, cases, tolerances. */
window.opened = () => {
  worker?.terminate();
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data: { id, answer } }) => {
    waiting.get(id)(answer);
    waiting.delete(id);
  };
  worker.onerror = ({ message }) => {
    for (const resolve of waiting.values()) resolve({ said: "broken", why: message ?? "the worker does not run" });
    waiting.clear();
  };
  return asked({ ask: "open" });
};

/** Runs a case, and returns its outcome. */
window.ran = (number, brief) => asked({ ask: "run", number, brief });
