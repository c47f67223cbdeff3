// A million random rows of three formats through store, site and loss scale: prints a hash of all bits, which capi/tests/rows.c prints too.
import { LossScale, Row, Site } from "./gradscale.mjs";

const rows = Number(process.argv[2] ?? 1_000_000);

// xorshift64 and FNV-1a, in halves of 32 bits: big integers take minutes.
let [high, low] = [0, 1];
function next() {
  high ^= (high << 13) | (low >>> 19);
  low ^= low << 13;
  low ^= (low >>> 7) | (high << 25);
  high ^= high >>> 7;
  high ^= (high << 17) | (low >>> 15);
  low ^= low << 17;
  high >>>= 0;
  low >>>= 0;
}
let [top, bottom] = [0xcbf29ce4, 0x84222325];
function add(word) {
  // Times 2^40 + 435.
  const x = bottom ^ word;
  const carry = ((x >>> 16) * 435 + (((x & 0xffff) * 435) >>> 16)) >>> 16;
  top = (Math.imul(top, 435) + carry + (x << 8)) | 0;
  bottom = Math.imul(x, 435);
}

const scale = new LossScale({ growthInterval: 20 });
const formats = ["fp16", "e5m2", "e4m3"];
let site = new Site();
for (let i = 0; i < rows; i++) {
  const format = formats[Math.floor(i / 100) % 3];
  if (i % 100 === 0) site = new Site({ format });
  next();
  const n = 1 + (low & 7);
  const base = 60 + (((high % 100) * (2 ** 24 % 100) + (low >>> 8)) % 100);
  const bits = new Uint32Array(n);
  for (let j = 0; j < n; j++) {
    next();
    bits[j] = high % 97 === 0 ? low : (low & 0x807fffff) | ((base + ((high >>> 8) % 24)) << 23);
  }
  const v = new Float32Array(bits.buffer);
  const request = site.request();
  let { exponent } = request;
  if (request.decidesInStep) {
    const look = new Row({ exponent: 0, detail: "histogram", format });
    look.observe(v);
    exponent = site.decide(look, 0);
  }
  const row = new Row({ exponent, detail: request.detail, format });
  const stored = format === "fp16" ? row.store(v) : row.store8(v);
  const { overflowed, infinite, nan, amax } = row.counts();
  const lost = overflowed + infinite + nan !== 0;
  site.finish(row, lost ? "skipped" : "stepped");
  scale.update(lost, amax, exponent);
  add(exponent);
  new Uint32Array(row.toBytes().buffer, 16).forEach(add);
  stored.forEach(add);
  add(scale.exponent);
}
const hex = (word) => (word >>> 0).toString(16).padStart(8, "0");
console.log(`${rows} rows: ${hex(top)}${hex(bottom)}`);
