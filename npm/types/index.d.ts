export { LossScale } from "./loss_scale.js";
export { product } from "./product.js";
export { Row } from "./row.js";
export { Site } from "./site.js";
export { decode, encode, proposeFixed, rescale } from "./casts.js";
export { GradscaleError, instructionSet } from "./library.js";
export { Step, stepEnd } from "./step.js";
