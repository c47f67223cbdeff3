// The installed package: values against formulas, and errors after wrong use.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as gs from "./gradscale.mjs";
import { call, reads, start } from "./node_modules/gradscale/js/library.js";

const status_of = (want) => (error) => error instanceof gs.GradscaleError && error.status === want && error.message.length > 10;

test("which module this is", () => {
  assert.equal(gs.instructionSet(), process.env.GRADSCALE_MODULE === "gradscale" ? "portable" : "SIMD128");
});

test("halves are what IEEE 754 says, both ways", () => {
  const patterns = Uint16Array.from({ length: 65536 }, (_, i) => i);
  const values = gs.decode("fp16", patterns);
  for (let i = 0; i < 65536; i++) {
    const [sign, exponent, mantissa] = [i >> 15 ? -1 : 1, (i >> 10) & 31, i & 1023];
    const special = mantissa ? NaN : sign * Infinity;
    const finite = sign * (exponent ? 2 ** (exponent - 15) * (1 + mantissa / 1024) : mantissa * 2 ** -24);
    assert.ok(Object.is(values[i], exponent === 31 ? special : finite), `pattern ${i}`);
  }
  // Conversions back to halves; midpoints go to the even neighbour, by cast and by store.
  const finite = values.subarray(0, 0x7c00);
  const middles = finite.map((x, i) => (x + (i + 1 < finite.length ? finite[i + 1] : 65536)) / 2);
  const even = Uint16Array.from(middles, (_, i) => i + (i & 1));
  for (const [x, want] of [[finite, patterns.subarray(0, 0x7c00)], [middles, even]]) {
    assert.deepEqual(gs.encode("fp16", x), want.slice());
    assert.deepEqual(new gs.Row({ detail: "none" }).store(x), want.slice());
  }
});

test("other formats, roundings and counts", () => {
  const counts = {};
  assert.deepEqual(gs.encode("e4m3", Float32Array.of(1, 448, 1e6, NaN), { counts }), Uint8Array.of(0x38, 0x7e, 0x7f, 0x7f));
  assert.deepEqual(counts, { exact: 3, inexact: 0, underflow: 0, overflow: 1, invalid: 0 });
  assert.deepEqual(gs.decode("e5m2", Uint8Array.of(0x3c, 0x7c, 0xbc)), Float32Array.of(1, Infinity, -1));
  assert.deepEqual(gs.encode("bf16", Float32Array.of(-2)), Uint16Array.of(0xc000));
  assert.deepEqual(gs.encode("fp16", Float32Array.of(1e6), { rounding: "toward_zero" }), Uint16Array.of(0x7bff));
  const x = new Float32Array(4000).fill(1 + 2 ** -12);
  const random = Uint32Array.from(x, (_, i) => Math.imul(i, 2654435761));
  const up = gs.encode("fp16", x, { rounding: "stochastic", random }).filter((bits) => bits === 0x3c01).length;
  assert.ok(up > 900 && up < 1100, `${up} of 4000 go up, not a quarter`);
});

test("rows count what formulas count", () => {
  const v = Float32Array.from({ length: 100_003 }, (_, i) => (i % 7 === 0 ? 0 : (i % 2 ? 1 : -1) * 2 ** (-(i % 60) / 1.5)));
  const [row, whole] = [new gs.Row({ exponent: 8 }), new gs.Row({ exponent: 8 })];
  const halves = row.store(v, 0);
  whole.observe(v.map((x) => x * 256));
  assert.deepEqual(row.toBytes(), whole.toBytes(), "the kernels see what core sees");
  const counts = row.counts();
  const stored = gs.decode("fp16", halves);
  const flushed = v.filter((x, i) => x !== 0 && stored[i] === 0).length;
  assert.equal(counts.count, v.length);
  assert.equal(counts.zeros, v.filter((x) => x === 0).length);
  assert.equal(counts.flushed, flushed);
  assert.equal(counts.amax, v.reduce((most, x) => Math.max(most, Math.abs(x)), 0) * 256);
  assert.equal(row.flushedAt(0), flushed / (v.length - counts.zeros));
  assert.ok(row.flushedAt(-5) > row.flushedAt(0) && row.lostAt(-5) > row.lostAt(0));
  const [left, right] = [new gs.Row({ exponent: 8 }), new gs.Row({ exponent: 8 })];
  left.store(v.subarray(0, 777));
  right.store(v.subarray(777));
  left.merge(right);
  assert.deepEqual(left.counts(), counts);
  assert.deepEqual(gs.Row.fromBytes(row.toBytes()).counts(), counts);
});

test("products are sums of products", () => {
  const [m, n, k] = [37, 29, 53];
  const small = (length, seed) => Float32Array.from({ length }, (_, i) => ((i * seed) % 17) - 8);
  const transposed = (x, rows, columns) => x.map((_, i) => x[(i % rows) * columns + Math.floor(i / rows)]);
  const [a, b] = [small(m * k, 7), small(k * n, 5)];
  const want = Float32Array.from({ length: m * n }, (_, i) => {
    let sum = 0;
    for (let l = 0; l < k; l++) sum += a[Math.floor(i / n) * k + l] * b[l * n + (i % n)];
    return sum;
  });
  assert.deepEqual(gs.matMul(a, b, { m, n, k }), want);
  assert.deepEqual(gs.matMul(transposed(a, m, k), b, { m, n, k, transposeA: true }), want);
  const halves = gs.encode("fp16", transposed(b, k, n));
  assert.deepEqual(gs.matMul(a, halves, { m, n, k, transposeB: true }), want);
  assert.deepEqual(gs.matMul(new Float32Array(0), new Float32Array(0), { m: 0, n: 3, k: 0 }), new Float32Array(0));
});

test("a gradient of 1e-12 is stored, a batch that does not fit is repeated, NaN is not", () => {
  const sites = [new gs.Site({ interval: 2 }), new gs.Site()];
  const gradient = Float32Array.from({ length: 500 }, (_, i) => 1e-12 * (1 + (i % 11)));
  const run = (values) => {
    const step = new gs.Step(sites);
    for (let tries = 1; ; tries++) {
      const { halves, exponent } = step.store(values);
      step.store(values, 0);
      const back = gs.rescale(gs.decode("fp16", halves), exponent);
      const outcome = step.end({ foundInf: !back.every(Number.isFinite), repeatable: true });
      if (outcome.next !== "repeat") return { ...outcome, tries, back };
    }
  };
  const first = run(gradient);
  assert.equal(first.next, "step");
  first.back.forEach((x, i) => assert.ok(Math.abs(x / gradient[i] - 1) < 2 ** -10));
  assert.equal(sites[0].decision().trigger, "first");
  const jump = run(gradient.map((x) => x * 2 ** 30));
  assert.deepEqual([jump.next, jump.tries], ["step", 2]);
  const before = sites[1].toBytes();
  const nan = run(gradient.map((x, i) => (i === 3 ? NaN : x)));
  assert.deepEqual([nan.next, nan.nonFinite, nan.site], ["skip", "nan", 0]);
  assert.notDeepEqual(gs.Site.fromBytes(before).request(), undefined);
});

test("gradients of eight bits are stored in bytes, at exponents of their format", () => {
  const gradient = Float32Array.from({ length: 500 }, (_, i) => 1e-12 * (1 + (i % 11)));
  for (const [format, digits] of [["e5m2", 2], ["e4m3", 3]]) {
    const site = new gs.Site({ format });
    assert.equal(gs.Site.fromBytes(site.toBytes()).format, format);
    const step = new gs.Step([site]);
    const { bytes, exponent } = step.store8(gradient);
    gs.rescale(gs.decode(format, bytes), exponent).forEach((x, i) => {
      assert.ok(Math.abs(x / gradient[i] - 1) <= 2 ** -(digits + 1), `${format} ${i}`);
    });
    assert.equal(step.end({ foundInf: false }).next, "step");
  }
});

test("a step that is discarded leaves every site as it was", () => {
  const sites = [new gs.Site(), new gs.Site()];
  const before = sites.map((site) => site.toBytes());
  const step = new gs.Step(sites);
  step.store(Float32Array.of(1e-9));
  step.discard();
  assert.deepEqual(sites.map((site) => site.toBytes()), before);
});

test("loss scales go as they should", () => {
  const scale = new gs.LossScale({ growthInterval: 3, floor: [[0, 2], [100, 4]] });
  const path = [false, false, false, true, true].map((inf) => (scale.update(inf), scale.exponent));
  assert.deepEqual(path, [16, 16, 17, 16, 15]);
  assert.equal(gs.LossScale.fixed(0.25).exponent, -2);
  const copy = gs.LossScale.fromBytes(scale.toBytes());
  assert.equal(copy.exponent, 15);
  const delayed = gs.LossScale.delayed({ history: 2 });
  delayed.update(false, 2 ** -20);
  assert.ok(delayed.exponent > 20);
  for (const other of [gs.LossScale.logMax(), gs.LossScale.chainer({ growthInterval: 10 })]) {
    other.update(true);
    assert.ok(Number.isInteger(other.exponent));
  }
  assert.equal(gs.proposeFixed(1, 0), 15);
});

test("wrong arguments are errors with a sentence", () => {
  const row = new gs.Row();
  const x = Float32Array.of(1, 2);
  const wrong = [
    [() => new gs.Row({ exponent: 1.5 }), RangeError, /exponent must be a whole number/],
    [() => new gs.Row({ exponent: 2 ** 31 }), RangeError, /exponent/],
    [() => new gs.Row({ exponents: 1 }), TypeError, /settings has no exponents/],
    [() => new gs.Row(7), TypeError, /settings must be an object, not 7/],
    [() => row.observe([1, 2]), TypeError, /u must be a Float32Array, not Array/],
    [() => row.store(new Float64Array(2)), TypeError, /v must be a Float32Array, not Float64Array/],
    [() => row.store(x, "0"), TypeError, /fromExponent must be a number, not "0"/],
    [() => row.merge({}), TypeError, /other must be a Row/],
    [() => new gs.Site().decide(new gs.Site()), TypeError, /row must be a Row, not Site/],
    [() => new gs.Site(null), TypeError, /config must be an object/],
    [() => gs.Site.fromBytes(new Uint8Array(7)), RangeError, /a site has 368 bytes, not 7/],
    [() => gs.encode("fp16", x, { rounding: "stochastic", random: new Uint32Array(1) }), RangeError, /each of 2 elements/],
    [() => gs.encode("fp16", x, { counts: null }), TypeError, /counts must be an Object, not null/],
    [() => new gs.Step(new gs.Site()), TypeError, /sites must be an Array, not Site/],
    [() => gs.decode("fp16", new Uint8Array(2)), TypeError, /patterns of fp16 must be a Uint16Array/],
    [() => gs.endStep([new gs.Site()], [], { foundInf: false }), RangeError, /1 sites do not fit 0 rows/],
    [() => gs.endStep([], [], {}), TypeError, /foundInf must be true or false, not undefined/],
    [() => new gs.Step([1]), TypeError, /site 0 must be a Site, not 1/],
    [() => new gs.Step([]).store(x), RangeError, /at each site only once/],
    [() => gs.matMul(x, x, { m: 2, n: 2, k: 2 }), RangeError, /a must have 4 elements, not 2/],
    [() => gs.matMul(x, x, { m: -1, n: 2, k: 2 }), RangeError, /m must be a whole number/],
    [() => gs.matMul(new Float32Array(0), x, { m: 0, n: 2, k: 1, transposeA: 1 }), TypeError, /transposeA/],
    [() => gs.matMul(new Float32Array(0), new Float32Array(0), { m: 65536, n: 65536, k: 0 }), RangeError, /too large/],
    [() => gs.rescale(x), TypeError, /fromExponent must be a number, not undefined/],
    [() => new gs.LossScale({ floor: 3 }), TypeError, /floor must be an Array/],
  ];
  for (const [call, type, text] of wrong) {
    assert.throws(call, (error) => error instanceof type && text.test(error.message), String(call));
  }
  const site = new gs.Site();
  const full = new gs.Row({ detail: "counts" });
  full.observe(x);
  const refused = [
    [() => gs.encode("fp61", x), "GS_ERROR_ENUM"],
    [() => site.finish(row, "done"), "GS_ERROR_ENUM"],
    [() => gs.encode("fp16", x, { rounding: "stochastic" }), "GS_ERROR_RANDOM"],
    [() => new gs.Row({ format: "bf16" }), "GS_ERROR_FORMAT"],
    [() => new gs.Row().store8(x), "GS_ERROR_FORMAT"],
    [() => new gs.Site({ format: "bf16" }), "GS_ERROR_ENUM"],
    [() => gs.Site.defaultConfig("e4m3_saturating"), "GS_ERROR_ENUM"],
    [() => new gs.Site({ format: "e5m2" }).finish(new gs.Row(), "stepped"), "GS_ERROR_FORMAT"],
    [() => new gs.Row({ format: "e4m3" }).store(x), "GS_ERROR_FORMAT"],
    [() => full.flushedAt(0), "GS_ERROR_DETAIL"],
    [() => site.decide(full), "GS_ERROR_DETAIL"],
    [() => row.merge(full), "GS_ERROR_MERGE"],
    [() => new gs.Site({ gamma: 2 }), "GS_ERROR_GAMMA"],
    [() => new gs.Site({ window: 31 }), "GS_ERROR_WINDOW"],
    [() => new gs.Site({ headroom: 0 }), "GS_ERROR_HEADROOM"],
    [() => new gs.Site({ interval: 0 }), "GS_ERROR_INTERVAL"],
    [() => new gs.Site({ outliers: 3 }), "GS_ERROR_OUTLIERS"],
    [() => gs.LossScale.fixed(3), "GS_ERROR_SCALE"],
    [() => new gs.LossScale({ minExponent: 5, maxExponent: 4 }), "GS_ERROR_BOUNDS"],
    [() => new gs.LossScale({ initExponent: 60 }), "GS_ERROR_INIT"],
    [() => new gs.LossScale({ growthExponent: 0 }), "GS_ERROR_FACTOR"],
    [() => new gs.LossScale({ tolerancePpm: 1_000_000 }), "GS_ERROR_TOLERANCE"],
    [() => new gs.LossScale({ floor: Array(9).fill([0, 0]) }), "GS_ERROR_FLOOR"],
    [() => gs.LossScale.logMax({ meanDecay: NaN }), "GS_ERROR_DECAY"],
    [() => gs.LossScale.delayed({ history: 17 }), "GS_ERROR_HISTORY"],
    [() => gs.proposeFixed(0), "GS_ERROR_SCALE"],
    [() => gs.Site.fromBytes(new Uint8Array(368)), "GS_ERROR_VERSION"],
    [() => gs.LossScale.fromBytes(new Uint8Array(296)), "GS_ERROR_VERSION"],
    [() => gs.Row.fromBytes(new Uint8Array(1136)), "GS_ERROR_VERSION"],
  ];
  for (const [call, want] of refused) assert.throws(call, status_of(want), String(call));
  assert.equal(site.decision(), undefined);
});

test("bytes that somebody else wrote to are refused, or do no harm", () => {
  const site = new gs.Site();
  site.decide(new gs.Row(), 0);
  const [of_site, of_row] = [site.toBytes(), new gs.Row({ detail: "moments" }).toBytes()];
  for (let bit = 0; bit < 8 * of_site.length; bit += 3) {
    const damaged = of_site.slice();
    damaged[bit >> 3] ^= 1 << (bit & 7);
    assert.throws(() => gs.Site.fromBytes(damaged), (error) => ["GS_ERROR_VERSION", "GS_ERROR_CORRUPTED"].includes(error.status));
  }
  let state = 9;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0);
  let taken = 0;
  for (let i = 0; i < 3000; i++) {
    const damaged = of_row.slice();
    // Damage in the header, in the first counters, or anywhere.
    damaged[(random() >>> 8) % (i % 2 ? 40 : damaged.length)] = random() >>> 24;
    try {
      const row = gs.Row.fromBytes(damaged);
      taken++;
      row.observe(Float32Array.of(1, NaN, -Infinity));
      new gs.Site().finish(row, "stepped");
    } catch (error) {
      assert.ok(error instanceof gs.GradscaleError, String(error));
    }
  }
  assert.ok(taken > 0 && taken < 3000, `${taken} of 3000 rows are possible`);
});

test("an instance that fails is replaced", () => {
  // A product of more memory than WebAssembly has.
  const failed = () => call("gs_npm_matmul", reads(new Float32Array(1)), 0, 0, 2 ** 15, 2 ** 15, 2 ** 15, 0, 0);
  assert.throws(failed, (error) => error instanceof gs.GradscaleError && ["GS_ERROR_OTHER", "GS_ERROR_LENGTH"].includes(error.status));
  assert.equal(new gs.Row().counts().count, 0);
  assert.throws(() => start(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))));
});
