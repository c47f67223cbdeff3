// What compiles, and what must not.
import { GradscaleError, LossScale, Row, Site, Step, decode, encode, product, stepEnd } from "gradscale";
import type { Counts, Decision, DynamicConfig, Format, Outcome, Request, SiteConfig } from "gradscale";

const halves: Uint16Array | Uint8Array = encode("fp16", new Float32Array(4), { round: "toward_zero" });
const values: Float32Array = decode("fp16", halves);
const site = new Site({ interval: 5, memory: "least" });
const limit: "threshold" | "normal_range" | "overflow" | "range" | "one" | undefined = site.decision()?.limit;
const { exponent }: { halves: Uint16Array; exponent: number } = new Step([site]).store(values);
const outcome: Outcome = stepEnd([site], [new Row()], { foundInf: false });
const next: "step" | "repeat" | "skip" = outcome.next;
const named: [Counts, Decision | undefined, DynamicConfig, Format, Request, SiteConfig] = [
  new Row().counts(), site.decision(), LossScale.usual(), "fp16", site.request(), Site.usual(),
];
const scale: number = LossScale.fixed(8).exponent;
const y: Float32Array = product(values, new Uint16Array(4), { m: 2, n: 2, k: 2 });
const status: string = new GradscaleError("GS_ROW", "").status;
// @ts-expect-error
encode("fp61", values);
// @ts-expect-error
new Row().observe([1, 2]);
// @ts-expect-error
new Site({ intervals: 3 });
// @ts-expect-error
site.finish(new Row(), "done");
// @ts-expect-error
stepEnd([site], [site], { foundInf: false });
export { exponent, limit, named, next, scale, status, y };
