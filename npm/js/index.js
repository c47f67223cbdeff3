// gradscale for JavaScript: the names, rules and errors of gradscale.h, as values and classes.
export { decode, encode, proposeFixed, rescale } from "./casts.js";
export { GradscaleError, instructionSet } from "./library.js";
export { LossScale } from "./loss_scale.js";
export { matMul } from "./matmul.js";
export { Row } from "./row.js";
export { Site } from "./site.js";
export { Step, endStep } from "./step.js";

// Types of arguments and results, by name.
/** @typedef {import("./casts.js").Format} Format */
/** @typedef {import("./loss_scale.js").DynamicConfig} DynamicConfig */
/** @typedef {import("./row.js").Counts} Counts */
/** @typedef {import("./site.js").Decision} Decision */
/** @typedef {import("./site.js").Request} Request */
/** @typedef {import("./site.js").SiteConfig} SiteConfig */
/** @typedef {import("./step.js").Outcome} Outcome */
