#!/usr/bin/env python3
"""Golden values of long sums in few bits: writes accumulate.csv to this directory.

How to run it (Python 3, mpmath only):

    pip install mpmath
    python3 accumulate.py            write accumulate.csv
    python3 accumulate.py --check    compare with the stored file, exit 1 on a difference

The script is deterministic and does not use the crate. It evaluates the formulas of the documentation of
accumulate::variance with 50 digits (the retention ratio itself, from which 1 is then subtracted). It computes sums in
exact rational arithmetic, and rounds each addition by the definition of the format.

Each row:  kind,arguments,value

  lost         mantissa term length        1 - VRR, decimal
  lost_chunks  mantissa term length chunk  the same in chunks
  worst        mantissa length chunk       (1 + u)^h - 1, decimal
  equal        mantissa chunk              ones, in whole chunks, before their sum is first wrong: found by adding
  sum          exponent_bits mantissa chunk toward_zero length seed
                                           the sum of `terms(seed)`, as the 16 hex digits of a binary64
"""

import os
import struct
import sys
from fractions import Fraction

from mpmath import erf, erfc, mp, mpf, sqrt

mp.dps = 50
HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "accumulate.csv")


# ---------------------------------------------------------------- variance

def outside(x):
    return erfc(x / sqrt(mpf(2)))


def inside(x):
    return erf(x / sqrt(mpf(2)))


def alpha(m, p, last):
    return mpf(2) ** (m - 3 * p) / 3 * sum(2**j * (2**j - 1) * (2 ** (j + 1) - 1) for j in range(1, last + 1))


def vrr(m, p, n):
    p = min(p, m)
    above, below = mpf(0), mpf(0)
    for i in range(2, n):
        if i > alpha(m, p, p):
            q = outside(2**m / sqrt(mpf(i))) * inside(2**m / sqrt(mpf(i - 1)))
            above += (i - alpha(m, p, p)) * q
            below += q
    for j in range(2, p + 1):
        if n > alpha(m, p, j - 1):
            root = sqrt(mpf(n))
            q = outside(mpf(2) ** (m - p + j - 1) / root) * inside(mpf(2) ** (m - p + j) / root)
            above += (n - alpha(m, p, j - 1)) * q
            below += q
    rest = inside(mpf(2) ** (m - p + 1) / sqrt(mpf(n)))
    return (above + n * rest) / (n * (below + rest))


def vrr_chunks(m, p, n, chunk):
    return vrr(m, p, chunk) * vrr(m, p + chunk.bit_length() - 1, -(-n // chunk))


def worst(m, n, chunk):
    h = chunk + -(-n // chunk) if 0 < chunk < n else n
    return (1 + mpf(2) ** -(m + 1)) ** h - 1


# ---------------------------------------------------------------- sums

def rounded(x, e, m, toward_zero):
    """x in a format of e exponent and m mantissa bits, nearest even or toward zero; it must not overflow."""
    if x == 0:
        return x
    least = 2 - 2 ** (e - 1)
    a = abs(x)
    k = a.numerator.bit_length() - a.denominator.bit_length()
    k -= a < Fraction(2) ** k
    assert Fraction(2) ** k <= a < Fraction(2) ** (k + 1)
    unit = Fraction(2) ** (max(k, least) - m)
    digits, rest = divmod(a, unit)
    if not toward_zero and (2 * rest > unit or (2 * rest == unit and digits % 2)):
        digits += 1
    r = digits * unit
    assert r < Fraction(2) ** (2 ** (e - 1)), "overflow"
    return r if x > 0 else -r


def total(terms, e, m, chunk, toward_zero):
    def plain(xs):
        s = Fraction(0)
        for x in xs:
            s = rounded(s + x, e, m, toward_zero)
        return s

    if not chunk:
        return plain(terms)
    return plain(plain(terms[i : i + chunk]) for i in range(0, len(terms), chunk))


def terms(seed, length):
    """24-bit integers over 2^20, times a power of two between 2^-12 and 2^3."""
    state, out = seed, []
    for _ in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        digits, power = (state >> 40) - 2**23, (state >> 36) % 16
        out.append(Fraction(digits, 2**20) * Fraction(2) ** (power - 12))
    return out


def equal(m, chunk):
    """Returns the first length, in whole chunks, at which the sum of ones is wrong, minus one step."""
    step = max(chunk, 1)
    for count in range(step, 2 ** (2 * m + 4), step):
        inner = total([Fraction(1)] * min(step, 2 ** (m + 2)), 8, m, 0, False)
        outer = total([inner] * (count // step), 8, m, 0, False)
        if outer != count:
            return count - step
    raise ArithmeticError("no end")


# ---------------------------------------------------------------- the file

def generate():
    lines = ["# kind,arguments,value -- written by accumulate.py, which says what they mean"]

    def row(kind, arguments, value):
        lines.append("%s,%s,%s" % (kind, " ".join(map(str, arguments)), value))

    for p in (2, 5, 10):
        for m in (4, 6, 8, 10, 12):
            for n in (3, 27, 64, 576, 4096):
                row("lost", (m, p, n), mp.nstr(1 - vrr(m, p, n), 20))
    for m, p, n in ((3, 5, 1000), (5, 5, 9000), (7, 5, 12000)):
        row("lost", (m, p, n), mp.nstr(1 - vrr(m, p, n), 20))
    for m in (4, 6, 8):
        for n, chunk in ((4096, 64), (4096, 16), (5000, 32), (100, 7)):
            row("lost_chunks", (m, 5, n, chunk), mp.nstr(1 - vrr_chunks(m, 5, n, chunk), 20))
    for m in (2, 9, 23):
        for n, chunk in ((1, 0), (4096, 0), (4096, 64), (1000, 7), (10, 64)):
            row("worst", (m, n, chunk), mp.nstr(worst(m, n, chunk), 20))
    for m in (2, 3, 4):
        for chunk in (0, 1, 2, 3, 4, 5, 6, 8):
            row("equal", (m, chunk), equal(m, chunk))
    for e, m in ((5, 10), (6, 9), (8, 3), (8, 7), (8, 23)):
        for chunk in (0, 16):
            for toward_zero in (0, 1):
                for length, seed in ((50, 1), (300, 2)):
                    value = total(terms(seed, length), e, m, chunk, bool(toward_zero))
                    bits = struct.unpack("<Q", struct.pack("<d", value.numerator / value.denominator))[0]
                    row("sum", (e, m, chunk, toward_zero, length, seed), "%016x" % bits)
    return "\n".join(lines) + "\n"


def main():
    args = sys.argv[1:]
    if args not in ([], ["--check"]):
        sys.exit("usage: accumulate.py [--check]")
    text = generate()
    if args:
        with open(TARGET, newline="") as f:
            if f.read() != text:
                sys.exit("accumulate.csv differs")
        print("accumulate.csv is up to date")
    else:
        with open(TARGET, "w", newline="") as f:
            f.write(text)
        print("wrote %d rows" % (text.count("\n") - 1))


if __name__ == "__main__":
    main()
