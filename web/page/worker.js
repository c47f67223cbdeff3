// One training. The page sends a question with a number, and gets the answer with that number.
import { open } from "./module.js";

let ask;
async function answered({ id, question }) {
  let answer;
  try {
    const { device, ...asked } = question;
    if (asked.ask === "open") ask ??= await open(device);
    answer = await ask(asked);
  } catch (error) {
    const broken = error instanceof WebAssembly.RuntimeError;
    answer = { said: "error", why: broken ? `the training broke off: ${error.message}` : String(error?.message ?? error) };
  }
  postMessage({ id, answer });
}

// One after the other, though an answer may take its time.
let last = Promise.resolve();
onmessage = ({ data }) => {
  last = last.then(() => answered(data));
};
