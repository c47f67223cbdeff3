"""Rows of statistics against numpy's own counting."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import gradscale as gs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

FLOATS = hnp.arrays(np.float32, st.integers(0, 200), elements=st.floats(width=32))


def counted(x, exponent):
    """Counts x · 2^exponent by numpy's own cast to float16."""
    with np.errstate(all="ignore"):
        u = np.ldexp(x.astype(np.float64), exponent)
        # Values that exceed float32 on the way to a half are infinite.
        u = np.where(np.abs(u) > np.finfo(np.float32).max, np.sign(u) * np.inf, u)
        y = u.astype(np.float16)
    finite, zero = np.isfinite(u), u == 0
    size = np.abs(y.astype(np.float64))
    return {
        "count": x.size,
        "zeros": np.count_nonzero(zero),
        "infinite": np.count_nonzero(np.isinf(u)),
        "nan": np.count_nonzero(np.isnan(u)),
        "flushed": np.count_nonzero(finite & ~zero & (y == 0)),
        "overflowed": np.count_nonzero(finite & np.isinf(y)),
        "subnormal": np.count_nonzero((size > 0) & (size < 2.0**-14)),
        "nonzero": np.count_nonzero(finite & ~zero),
        "amax": float(np.max(np.abs(u[finite]), initial=0)),
    }


@settings(max_examples=300)
@given(x=FLOATS, exponent=st.integers(-30, 30))
def test_counts_are_numpys(x, exponent):
    # Scaled values that are float32 subnormals are rounded on their way: let them be normal, or zero.
    x = np.where(np.abs(x) < 2.0**-90, 0, x).astype(np.float32)
    row = gs.observe(x, exponent)
    assert {key: getattr(row, key) for key in counted(x, exponent)} == counted(x, exponent)
    assert row.exponent == exponent and row.detail == "histogram"
    assert row.histogram.sum() == row.nonzero


@given(x=FLOATS)
def test_the_histogram_counts_by_powers_of_two(x):
    live = np.abs(x[np.isfinite(x) & (x != 0)]).astype(np.float64)
    # Bin i: 2^(i − 128) < |x| ≤ 2^(i − 127); all that is smaller is in bin 1.
    bins = np.clip(np.ceil(np.log2(live)).astype(int) + 127, 1, 255) if live.size else np.zeros(0, int)
    assert np.array_equal(gs.observe(x).histogram, np.bincount(bins, minlength=256))


@given(x=FLOATS, k=st.integers(-40, 60))
def test_a_histogram_tells_what_flushes_at_other_scales(x, k):
    x = np.where(np.abs(x) < 2.0**-80, 0, x).astype(np.float32)
    nonzero = x[np.isfinite(x) & (x != 0)].astype(np.float64)
    flushed = np.count_nonzero(np.abs(np.ldexp(nonzero, k)) <= 2.0**-25)
    assert gs.observe(x).flushed_at(k) == (flushed / nonzero.size if nonzero.size else 0)


@given(x=FLOATS, at=st.integers(0, 200), detail=st.sampled_from(["counts", "histogram"]))
def test_rows_merge(x, at, detail):
    parts = gs.observe(x[:at], detail=detail) + gs.observe(x[at:], detail=detail)
    assert parts == gs.observe(x, detail=detail)


def test_sums_within_the_bound():
    x = np.random.default_rng(0).lognormal(size=100_000).astype(np.float32)
    exact = x.astype(np.float64)
    expected = [exact.sum(), (exact**2).sum(), np.log(exact).sum(), (np.log(exact) ** 2).sum()]
    for got, want, size in zip(gs.observe(x, detail="moments").moments, expected, [1, 1, 1e5, 1]):
        assert abs(got - want) <= 2.0**-15.9 * max(abs(want), size)


def test_stores_say_what_numpy_sees():
    x = (np.random.default_rng(1).standard_normal(70_001) * 10.0 ** np.linspace(-9, 9, 70_001)).astype(np.float32)
    for exponent in (-9, 0, 7):
        y, row = gs.store(x, exponent)
        with np.errstate(over="ignore"):
            assert np.array_equal(y, (x * np.float32(2.0**exponent)).astype(np.float16))
        assert row == gs.observe(x, exponent) and row.flushed == counted(x, exponent)["flushed"]
    # A store from halves at one exponent to halves at another.
    again, row = gs.store(y, 3, from_exponent=7)
    assert np.array_equal(again, (y.astype(np.float32) / 16).astype(np.float16))
    # Stores into an existing array, without a copy; into a strided one, with a copy.
    out = np.zeros((2, 3), np.float16)
    half, _ = gs.store(np.ones(3, np.float32), 1, out=out[0])
    assert np.shares_memory(half, out) and out.tolist() == [[2, 2, 2], [0, 0, 0]]
    gs.store(np.ones(2, np.float32), 2, out=out[:, 1])
    assert out.tolist() == [[2, 4, 2], [0, 4, 0]]


def test_calls_of_a_site_merge_in_its_row():
    rows = np.zeros((2, gs.ROW_WORDS), np.int32)
    for x in ([1.0, 1e-9], [2.0]):
        gs.store(np.float32(x), 0, row=rows[1])
    assert not rows[0].any()
    assert np.array_equal(rows[1].view(np.uint32), gs.observe(np.float32([1, 1e-9, 2])).to_words())
    with pytest.raises(ValueError, match="exponents 0 and 1"):
        gs.store(np.float32([1]), 1, row=rows[1])


def test_the_same_bits_for_any_number_of_threads():
    x = np.random.default_rng(2).standard_normal(300_000).astype(np.float32)
    seen = []
    for threads in (1, 2, 3):
        gs.set_num_threads(threads)
        y, row = gs.store(x, 3, detail="moments")
        seen.append((y.tobytes(), row.to_bytes()))
    gs.set_num_threads(0)
    assert len(set(seen)) == 1


def test_many_threads_at_a_time():
    rows = np.zeros((8, gs.ROW_WORDS), np.uint32)
    data = [np.full(100_000, 2.0**-i, np.float32) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            rows[:] = 0
            list(pool.map(lambda i: gs.store(data[i], 0, row=rows[i]), range(8)))
            assert np.array_equal(rows, np.stack([gs.observe(x).to_words() for x in data]))


def test_a_forked_process_works():
    import os

    gs.observe(np.ones(100_000, np.float32))
    child = os.fork()
    if child == 0:
        # A forked process has none of its parent's threads, and starts its own.
        os._exit(0 if gs.observe(np.ones(100_000, np.float32)).count == 100_000 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_bytes_and_pickles():
    row = gs.observe(np.float32([1, 2, 1e-9]), 4, "moments")
    assert gs.Stats.from_bytes(row.to_bytes()) == row and pickle.loads(pickle.dumps(row)) == row
    for broken in (b"", row.to_bytes()[:-4], b"\xff" * len(row.to_bytes())):
        with pytest.raises(ValueError):
            gs.Stats.from_bytes(broken)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: gs.observe([1j]), TypeError),
        (lambda: gs.observe([1.0], detail="all"), ValueError),
        (lambda: gs.observe([1.0], detail=9), ValueError),
        (lambda: gs.observe([1.0]) + gs.observe([1.0], 1), ValueError),
        (lambda: gs.observe([1.0]) + 1, TypeError),
        (lambda: gs.store([1.0], 0, out=np.zeros(2, np.float16)), TypeError),
        (lambda: gs.store([1.0], 0, row=np.zeros(3, np.uint32)), ValueError),
    ],
)
def test_refuses(call, error):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value)
