#!/usr/bin/env python3
"""Golden casts, round to nearest even: writes casts.csv and casts_f64.csv to this directory.

How to run it:

    pip install numpy ml_dtypes
    python3 casts.py            write both files
    python3 casts.py --check    compare with the stored files, exit 1 on a difference

Deterministic: fixed lists and a seeded generator.

casts.csv      f32_bits,f16,bf16,e5m2,e4m3 in hex. Results of numpy (float16) and
               ml_dtypes (bfloat16, float8_e5m2, float8_e4m3fn). No NaN among
               the inputs. E4M3 has no infinity: overflow and infinite inputs give
               NaN, magnitude 7f, with the sign of the input (7f or ff).
casts_f64.csv  f64_bits,f16 in hex, rounded once, in exact rational arithmetic.

Both tables are also computed the other way round: casts.csv in exact rational
arithmetic from the definition of the formats, casts_f64.csv with numpy. A
disagreement is printed and makes the script exit 2 without writing.
"""

import os
import random
import struct
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


# ---------------------------------------------------------------- the definition

class Format:
    """bits: total width; e, m: exponent and mantissa bits; fn: no infinity, one NaN magnitude."""

    def __init__(self, name, e, m, fn=False):
        self.name, self.e, self.m, self.fn = name, e, m, fn
        self.bias = (1 << (e - 1)) - 1
        self.sign = 1 << (e + m)
        self.inf = self.sign - 1 if fn else ((1 << e) - 1) << m  # result of an overflow; fn: the NaN
        self.emin = 1 - self.bias

    def value(self, code):
        """Returns the value of a magnitude code, also of the code after the largest."""
        exp, man = code >> self.m, code & ((1 << self.m) - 1)
        if exp == 0:
            return man * pow2(self.emin - self.m)
        return (man + (1 << self.m)) * pow2(exp - self.bias - self.m)

    def encode(self, negative, mag):
        """mag: a Fraction >= 0, or None for infinity."""
        sign = self.sign if negative else 0
        if mag is None:
            return sign | self.inf
        # the largest code that is not above mag, by bisection over the (monotone) codes
        lo, hi = 0, self.inf
        while hi - lo > 1:
            mid = (lo + hi) // 2
            lo, hi = (mid, hi) if self.value(mid) <= mag else (lo, mid)
        if mag >= self.value(self.inf):
            return sign | self.inf
        below, above = self.value(lo), self.value(lo + 1)
        twice = 2 * mag - below - above
        up = twice > 0 or (twice == 0 and lo & 1)
        return sign | (lo + 1 if up else lo)


def pow2(k):
    return Fraction(1 << k) if k >= 0 else Fraction(1, 1 << -k)


F16 = Format("f16", 5, 10)
BF16 = Format("bf16", 8, 7)
E5M2 = Format("e5m2", 5, 2)
E4M3 = Format("e4m3", 4, 3, fn=True)
FORMATS = [F16, BF16, E5M2, E4M3]

F32 = Format("f32", 8, 23)
F64 = Format("f64", 11, 52)


def split(fmt, b):
    """Returns (negative, magnitude) of a pattern that is not NaN."""
    mag = b & (fmt.sign - 1)
    assert mag <= fmt.inf
    return bool(b & fmt.sign), None if mag == fmt.inf else fmt.value(mag)


def to_bits(fmt, x):
    """Returns the pattern of a non-negative Fraction that the format represents exactly."""
    b = fmt.encode(False, x)
    assert fmt.value(b) == x, x
    return b


# ---------------------------------------------------------------- inputs

def f32_inputs():
    rng = random.Random(20200715)
    sign = F32.sign
    pos, both = [], [0, F32.inf]

    # every power of two of f32, with its neighbours below and above
    for k in range(-149, 128):
        b = to_bits(F32, pow2(k))
        both.append(b)
        pos += [b - 1, b + 1] if k % 8 == 0 else []
    both += [F32.inf - 1, 1, 2, 3, 0x007FFFFF, 0x00800000, 0x00800001]

    def edge(fmt, code, out):
        """Returns a value and the midpoint above it, with their f32 neighbours."""
        for x in (fmt.value(code), (fmt.value(code) + fmt.value(code + 1)) / 2):
            if x < F32.value(F32.inf):
                b = to_bits(F32, x)
                out += [v for v in (b - 1, b, b + 1) if 0 <= v <= F32.inf]

    for fmt in FORMATS:
        normal, top = 1 << fmt.m, fmt.inf
        for code in [0, 1, 2, 3, normal - 2, normal - 1, normal, normal + 1, top - 3, top - 2, top - 1, top]:
            edge(fmt, code, both)
    for fmt in (E5M2, E4M3):  # every one of their values and midpoints
        for code in range(fmt.inf):
            edge(fmt, code, pos)
    for _ in range(60):
        edge(F16, rng.randrange(F16.inf), pos)
        edge(BF16, rng.randrange(BF16.inf), pos)
    # numbers that the specification quotes in decimal
    both += [to_bits(F32, Fraction(v)) for v in (65504, 65519, 65520, 65521, 65536, 57344, 61439, 61440, 61441, 448, 463,
                                                  464, 465, 479, 480, 496, 512)]
    both.append(to_bits(F32, (2 - pow2(-8)) * pow2(127)))

    out = [s | b for b in both for s in (0, sign)]
    out += [b | (sign if rng.random() < 0.25 else 0) for b in pos]
    n = 0
    while n < 300:  # anywhere
        b = rng.getrandbits(32)
        if b & 0x7FFFFFFF < F32.inf:
            out.append(b)
            n += 1
    for _ in range(250):  # where the small formats live
        out.append(rng.getrandbits(1) << 31 | rng.randrange(127 - 27, 127 + 17) << 23 | rng.getrandbits(23))
    for _ in range(60):  # f32 subnormals
        out.append(rng.getrandbits(1) << 31 | rng.getrandbits(23))
    return list(dict.fromkeys(out))


def f64_inputs():
    rng = random.Random(20200716)
    sign = F64.sign
    pos = [0, 1, 2, (1 << 52) - 1, 1 << 52, (1 << 52) + 1, F64.inf - 1, F64.inf]

    def put(x):
        pos.append(to_bits(F64, x))

    # 1 + 2^-11 + 2^-40: through f32 it would become the midpoint 1 + 2^-11, then 1
    for tail in (26, 30, 36, 40, 50, 52):
        put(1 + pow2(-11) + pow2(-tail))
        put(1 + pow2(-11) - pow2(-tail))
        put(1 + 3 * pow2(-11) + pow2(-tail))
        put(1 + 3 * pow2(-11) - pow2(-tail))  # through f32: up to even, wrongly
    # the same at every kind of midpoint: the smallest differences that f64 represents and f32 does not
    normal = 1 << F16.m
    codes = [0, 1, 2, 3, 4, 7, 8, 511, 512, normal - 2, normal - 1, normal, normal + 1, 0x3BFE, 0x3BFF, 0x3C00, 0x3C01,
             0x3C02, 0x7BFD, 0x7BFE, 0x7BFF]
    codes += [rng.randrange(F16.inf) for _ in range(24)]
    for code in codes:
        mid = (F16.value(code) + F16.value(code + 1)) / 2
        b = to_bits(F64, mid)
        pos.extend([b, b - 1, b + 1, b - rng.randrange(2, 1 << 27), b + rng.randrange(2, 1 << 27)])
        v = to_bits(F64, F16.value(code))
        pos.extend([v, v + 1] if v == 0 else [v, v - 1, v + 1])
    for v in (65504, 65519, 65520, 65521, 65536, 10**6, 10**300):
        pos.append(struct.unpack("<Q", struct.pack("<d", float(v)))[0])
    for k in list(range(-30, 18)) + [-1074, -1022, -200, -150, -149, -127, -126, -100, -60, 100, 127, 128, 1023]:
        put(pow2(k))
    for v in (6e-8, 1e-3, 0.1, 1 / 3, 2 / 3, 3.141592653589793, 1e-7, 5.9e-8, 2.98e-8, 1e-10):
        pos.append(struct.unpack("<Q", struct.pack("<d", v))[0])

    pos = list(dict.fromkeys(pos))
    out = []
    for i, b in enumerate(pos):
        out.append(b)
        if i % 4 == 0 or b in (0, F64.inf):
            out.append(b | sign)
    for _ in range(60):
        out.append(rng.getrandbits(1) << 63 | rng.randrange(1023 - 27, 1023 + 17) << 52 | rng.getrandbits(52))
    for _ in range(20):
        b = rng.getrandbits(64)
        if b & (sign - 1) < F64.inf:
            out.append(b)
    return list(dict.fromkeys(out))


# ---------------------------------------------------------------- the files

def generate():
    np.seterr(all="ignore")
    trouble = []

    inputs = f32_inputs()
    x = np.array(inputs, dtype=np.uint32).view(np.float32)
    columns = [
        x.astype(np.float16).view(np.uint16),
        x.astype(ml_dtypes.bfloat16).view(np.uint16),
        x.astype(ml_dtypes.float8_e5m2).view(np.uint8),
        x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8),
    ]
    lines = ["# f32_bits,f16,bf16,e5m2,e4m3 -- hex, round to nearest even; e4m3 overflow: NaN, 7f or ff; written by casts.py"]
    for i, b in enumerate(inputs):
        negative, mag = split(F32, b)
        cells = ["%08x" % b]
        for fmt, col in zip(FORMATS, columns):
            got, want = int(col[i]), fmt.encode(negative, mag)
            if got != want:
                trouble.append("%s of f32 %08x: library %x, definition %x" % (fmt.name, b, got, want))
            cells.append("%0*x" % ((fmt.e + fmt.m + 4) // 4, got))
        lines.append(",".join(cells))
    f32_text = "\n".join(lines) + "\n"

    inputs = f64_inputs()
    numpy16 = np.array(inputs, dtype=np.uint64).view(np.float64).astype(np.float16).view(np.uint16)
    lines = ["# f64_bits,f16 -- hex, round to nearest even, rounded once; written by casts.py"]
    for b, got in zip(inputs, numpy16):
        want = F16.encode(*split(F64, b))
        if int(got) != want:
            trouble.append("f16 of f64 %016x: numpy %x, definition %x" % (b, int(got), want))
        lines.append("%016x,%04x" % (b, want))
    f64_text = "\n".join(lines) + "\n"

    one = struct.unpack("<Q", struct.pack("<d", 1 + 2.0**-11 + 2.0**-40))[0]
    assert "\n%016x,3c01\n" % one in f64_text
    if trouble:
        print("\n".join(trouble), file=sys.stderr)
        sys.exit(2)
    return {"casts.csv": f32_text, "casts_f64.csv": f64_text}


def main():
    args = sys.argv[1:]
    if args not in ([], ["--check"]):
        sys.exit("usage: casts.py [--check]")
    bad = False
    for name, text in generate().items():
        path = os.path.join(HERE, name)
        if args:
            with open(path, newline="") as f:
                same = f.read() == text
            print("%s %s" % (name, "is up to date" if same else "differs"))
            bad |= not same
        else:
            with open(path, "w", newline="") as f:
                f.write(text)
            print("%s: wrote %d rows" % (name, text.count("\n") - 1))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
