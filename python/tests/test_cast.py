"""Casts against numpy and ml_dtypes: all patterns of 16 bits, both sides of every rounding boundary, random values."""

import gradscale as gs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3": ml_dtypes.float8_e4m3fn,
}


def patterns(name):
    """Returns all patterns of a format, as its dtype."""
    dtype = np.dtype(DTYPES[name])
    return np.arange(1 << (8 * dtype.itemsize), dtype=f"uint{8 * dtype.itemsize}").view(dtype)


def same(a, b):
    """Compares bit for bit, except for the payload of NaN."""
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    word = f"uint{8 * a.dtype.itemsize}"
    assert a.dtype == b.dtype and a.shape == b.shape
    assert np.array_equal(np.where(nan, 0, a.view(word)), np.where(nan, 0, b.view(word)))


def boundaries(name):
    """Returns every midpoint between two neighbours, and the float32 numbers on both sides of it."""
    with np.errstate(invalid="ignore"):
        values = patterns(name).astype(np.float32).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    largest = values[-1] + (values[-1] - values[-2])
    values = np.concatenate([[-largest], values, [largest]])
    with np.errstate(over="ignore"):
        middles = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    middles = middles[np.isfinite(middles)]
    return np.concatenate([np.nextafter(middles, -np.inf), middles, np.nextafter(middles, np.inf)])


@pytest.mark.parametrize("name", DTYPES)
def test_decodes_every_pattern(name):
    y = patterns(name)
    with np.errstate(invalid="ignore"):
        same(gs.decode(y), y.astype(np.float32))
        same(gs.decode(y.view(f"uint{8 * y.dtype.itemsize}"), name), y.astype(np.float32))


@pytest.mark.parametrize("name", DTYPES)
def test_rounds_to_nearest_at_every_boundary(name):
    x = boundaries(name)
    with np.errstate(over="ignore"):
        expected = x.astype(DTYPES[name])
    same(gs.cast(x, name), expected)
    # float64 rounds once: a little above half way is up, where float32 would have rounded that away.
    above = np.nextafter(x.astype(np.float64), np.inf)
    exact = gs.cast(above, name).astype(np.float64)
    near = np.abs(exact - above)
    with np.errstate(over="ignore"):
        down = np.abs(gs.cast(x.astype(np.float64), name, rounding="toward_zero").astype(np.float64) - above)
    finite = np.isfinite(exact)
    assert np.all(near[finite] <= down[finite])
    if name == "fp16":
        with np.errstate(over="ignore"):
            same(gs.cast(above, name), above.astype(np.float16))


@pytest.mark.parametrize("name", DTYPES)
def test_rounds_toward_zero(name):
    x = boundaries(name)
    y = gs.cast(x, name, rounding="toward_zero").astype(np.float32)
    assert np.all(np.abs(y) <= np.abs(x)) and np.all(np.isfinite(y))
    # No other number of the format is between them.
    with np.errstate(invalid="ignore"):
        values = np.unique(np.abs(patterns(name).astype(np.float32)))
    values = values[np.isfinite(values)]
    expected = values[np.searchsorted(values, np.abs(x), side="right") - 1]
    assert np.array_equal(np.abs(y), expected)


@pytest.mark.parametrize("name", DTYPES)
@given(x=hnp.arrays(np.float32, st.integers(0, 300), elements=st.floats(width=32, allow_nan=True)))
def test_rounds_any_float32(name, x):
    with np.errstate(over="ignore", invalid="ignore"):
        same(gs.cast(x, name), x.astype(DTYPES[name]))


@given(exponent=st.integers(-200, 200), x=hnp.arrays(np.float32, 8, elements=st.floats(-(2.0**20), 2.0**20, width=32)))
def test_scales_before_it_rounds(exponent, x):
    with np.errstate(over="ignore"):
        same(gs.cast(x, exponent=exponent), np.ldexp(x.astype(np.float64), exponent).astype(np.float16))
        same(gs.cast(x.astype(np.float64), exponent=exponent), np.ldexp(x.astype(np.float64), exponent).astype(np.float16))


def test_stochastic_rounding_is_unbiased_and_repeatable():
    x = np.full(100_000, np.float32(1 + 2.0**-10 * 0.3))
    y = gs.cast(x, rounding="stochastic", seed=7)
    assert set(y.tolist()) == {1.0, 1 + 2.0**-10}
    # Within four standard deviations of the share that rounds up.
    assert abs(np.mean(y != 1) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / x.size)
    assert np.array_equal(y, gs.cast(x, rounding="stochastic", seed=7))
    assert not np.array_equal(y, gs.cast(x, rounding="stochastic", seed=8))
    assert gs.cast(np.float32(0.5), rounding="stochastic", seed=3) == 0.5


def test_saturates_where_asked():
    assert gs.cast(1e9, "e4m3,saturating") == 448 and np.isnan(float(gs.cast(1e9, "e4m3")))
    assert gs.cast(-1e9, "fp16,saturating") == -65504 and gs.cast(-1e9, "fp16") == -np.inf


def test_counts_what_happened():
    x = np.float32([1, 0.1, 1e-9, 1e9, np.inf, -0.0])
    y, counts = gs.cast(x, return_counts=True)
    assert counts == {"exact": 3, "inexact": 1, "underflow": 1, "overflow": 1, "invalid": 0}
    assert np.signbit(y[-1])
    assert gs.cast(np.float32([np.inf]), "e4m3", return_counts=True)[1]["invalid"] == 1


def test_shapes_strides_scalars_and_other_numbers():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
    for view in (x, x.T, x[:, ::2], x[..., 1], x[:0], np.asfortranarray(x), x.astype(">f4"), x.tolist(), x.astype(int)):
        with_numpy = np.asarray(view).astype(np.float16)
        y = gs.cast(view)
        assert y.shape == with_numpy.shape and np.array_equal(y, with_numpy)
    assert isinstance(gs.cast(1.1), np.float16) and gs.cast(1.1) == np.float16(1.1)
    assert gs.cast(2**24 + 1, "fp32") == np.float32(2**24 + 1)
    assert gs.cast(np.float16(1.5), "bf16") == 1.5
    assert gs.cast(ml_dtypes.bfloat16(1.5)) == 1.5
    assert gs.cast(True) == 1


def test_writes_where_it_is_told():
    x = np.float32([[1, 2], [3, 4]])
    out = np.zeros((2, 4), np.float16)
    assert gs.cast(x, out=out[:, ::2]) is not None
    assert np.array_equal(out, [[1, 0, 2, 0], [3, 0, 4, 0]])
    bits = np.zeros((2, 2), np.uint16)
    gs.cast(x, "bf16", out=bits)
    assert np.array_equal(bits.view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
    values = np.zeros((2, 2), np.float32)
    assert gs.decode(bits, "bf16", out=values) is values and np.array_equal(values, x)
    assert gs.cast(x, "bf16", as_bits=True).dtype == np.uint16
    assert gs.decode(gs.cast(x, exponent=5), exponent=5).tolist() == x.tolist()


def test_other_widths():
    """ml_dtypes has no 1 + 6 + 9 bits; its results are those of float16 with another exponent range."""
    x = np.float32([1, 1 + 2.0**-9, 1 + 2.0**-10, 2.0**31, 2.0**32, 2.0**-39])
    assert gs.decode(gs.cast(x, "e6m9"), "e6m9").tolist() == [1, 1 + 2.0**-9, 1, 2.0**31, np.inf, 2.0**-39]
    same(gs.cast(x, "e8m7", as_bits=True), x.astype(ml_dtypes.bfloat16).view(np.uint16))
    assert gs.cast(np.float32(1 + 2.0**-11), "tf32") == 0x1FC00


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: gs.cast(1j), TypeError),
        (lambda: gs.cast("a"), TypeError),
        (lambda: gs.cast(np.longdouble(1)), TypeError),
        (lambda: gs.cast(1.0, "fp17"), ValueError),
        (lambda: gs.cast(1.0, "e9m9"), ValueError),
        (lambda: gs.cast(1.0, rounding="up"), ValueError),
        (lambda: gs.cast([1.0], out=np.zeros(2, np.float16)), TypeError),
        (lambda: gs.cast([1.0], out=np.zeros(1, np.float32)), TypeError),
        (lambda: gs.decode(np.zeros(1, np.uint16)), TypeError),
        (lambda: gs.decode(np.zeros(1, np.uint8), "fp16"), TypeError),
        (lambda: gs.decode(np.zeros(1, np.complex64)), (TypeError, ValueError)),
    ],
)
def test_refuses(call, error):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value)


def test_reads_read_only_arrays_and_refuses_to_write_them():
    x = np.float32([1.0])
    x.flags.writeable = False
    assert gs.cast(x) == 1
    out = np.zeros(1, np.float16)
    out.flags.writeable = False
    with pytest.raises((TypeError, ValueError)):
        gs.cast(x, out=out)
