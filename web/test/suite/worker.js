// The conformance suite, one case after another, each when it is asked for.
import init, { conformance_open, conformance_outcome } from "./gradscale_web.js";

const said = [];
const toConsole = console.error;
console.error = (...words) => {
  said.push(words.join(" "));
  toConsole(...words);
};

let run;
onmessage = async ({ data: { id, ask, number, brief } }) => {
  try {
    if (ask === "open") {
      const { gs_conformance_run } = await init();
      run = WebAssembly.promising(gs_conformance_run);
      postMessage({ id, answer: JSON.parse(await conformance_open()) });
      return;
    }
    await run(number, brief);
    postMessage({ id, answer: JSON.parse(conformance_outcome()) });
  } catch (error) {
    // A worker that has panicked cannot continue, so the next case gets another worker.
    postMessage({ id, answer: { said: "broken", why: said.at(-1) ?? String(error?.message ?? error) } });
  }
};
