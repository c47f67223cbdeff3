// What compiles, and what must not.
import { GradscaleError, LossScale, Row, Site, Step, decode, encode, endStep, matMul } from "gradscale";
import type { Counts, Decision, DynamicConfig, Format, Outcome, Request, SiteConfig } from "gradscale";

const halves: Uint16Array | Uint8Array = encode("fp16", new Float32Array(4), { rounding: "toward_zero" });
const values: Float32Array = decode("fp16", halves);
const site = new Site({ interval: 5, history: "min" });
const limitedBy: "threshold" | "normal_range" | "overflow" | "range" | "one" | undefined = site.decision()?.limitedBy;
const { exponent }: { halves: Uint16Array; exponent: number } = new Step([site]).store(values);
const outcome: Outcome = endStep([site], [new Row()], { foundInf: false });
const next: "step" | "repeat" | "skip" = outcome.next;
const named: [Counts, Decision | undefined, DynamicConfig, Format, Request, SiteConfig] = [
  new Row().counts(), site.decision(), LossScale.defaultConfig(), "fp16", site.request(), Site.defaultConfig(),
];
const scale: number = LossScale.fixed(8).exponent;
const y: Float32Array = matMul(values, new Uint16Array(4), { m: 2, n: 2, k: 2 });
const status: string = new GradscaleError("GS_ERROR_ROW", "").status;
// @ts-expect-error
encode("fp61", values);
// @ts-expect-error
new Row().observe([1, 2]);
// @ts-expect-error
new Site({ intervals: 3 });
// @ts-expect-error
site.finish(new Row(), "done");
// @ts-expect-error
endStep([site], [site], { foundInf: false });
export { exponent, limitedBy, named, next, scale, status, y };
