"""Stores in formats of 8 bits, against the casts of ml_dtypes and of PyTorch."""

import gradscale as gs
import ml_dtypes
import numpy as np
import pytest

TYPES = {"e5m2": ml_dtypes.float8_e5m2, "e4m3": ml_dtypes.float8_e4m3fn}
#: Largest number, smallest normal and smallest subnormal number.
BOUNDS = {"e5m2": (57344.0, 2.0**-14, 2.0**-16), "e4m3": (448.0, 2.0**-6, 2.0**-9)}


def values(name):
    """Every value of a format, every midpoint of two neighbours, both neighbours in f32 of each, what no format has, and
    values over the whole range of f32."""
    every = np.arange(256, dtype=np.uint8).view(TYPES[name]).astype(np.float32)
    every = np.sort(every[np.isfinite(every)])
    edges = np.concatenate([every, (every[1:] + every[:-1]) / 2, [BOUNDS[name][0] * 1.1]]).astype(np.float32)
    edges = np.concatenate([edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))])
    if name == "e4m3":
        # The tie above the largest number goes to it, because it is even.
        edges = np.concatenate([edges, np.float32([464, np.nextafter(np.float32(464), np.float32(465)), 479, 480])])
    else:
        edges = np.concatenate([edges, np.float32([61440, np.nextafter(np.float32(61440), np.float32(0))])])
    rest = np.random.default_rng(0).integers(0, 2**32, 100_000, np.uint64).astype(np.uint32).view(np.float32)
    special = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38])
    return np.concatenate([edges, -edges, rest, special])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("exponent", [-20, 0, 11])
def test_rounds_once_as_other_casts_do(name, exponent):
    x = values(name)
    with np.errstate(all="ignore"):
        u = np.ldexp(x, exponent).astype(np.float32) if exponent <= 0 else np.float32(x * np.float32(2.0**exponent))
        expected = u.astype(TYPES[name]).astype(np.float16)
    y, row = gs.store(x, exponent, format=name)
    assert y.dtype == np.float16
    assert np.array_equal(y, expected, equal_nan=True) and np.array_equal(np.signbit(y), np.signbit(expected))
    # What the row says, counted from the values before and after.
    size, least, (top, normal, _) = np.abs(y.astype(np.float64)), np.isfinite(u) & (u != 0), BOUNDS[name]
    overflowed = np.isfinite(u) & ~np.isfinite(expected)
    assert row.format == name and row.exponent == exponent and row.count == x.size
    assert row.flushed == np.count_nonzero(least & (y == 0)) > 100
    assert row.overflowed == np.count_nonzero(overflowed) > 100 and size[np.isfinite(y)].max() == top
    assert row.subnormal == np.count_nonzero((size > 0) & (size < normal)) > 10
    assert gs.observe(x, exponent, format=name) == row
    assert row.amax == np.abs(u[np.isfinite(u)]).max()


@pytest.mark.parametrize("name", TYPES)
def test_equals_torchs_cast(name):
    """Within the range of the format: beyond it torch has clipped values or made them ∞ or NaN, as its version went."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = values(name)
    x = x[np.abs(x) <= BOUNDS[name][0] * (1 + 1 / 32)]
    theirs = torch.from_numpy(x).to({"e5m2": torch.float8_e5m2, "e4m3": torch.float8_e4m3fn}[name]).half().numpy()
    y = gs.store(x, format=name)[0]
    assert x.size > 10_000 and np.array_equal(y.view(np.uint16), theirs.view(np.uint16))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_any_number_of_threads_and_any_array(name, threads):
    x = np.random.default_rng(1).standard_normal((300, 401)).astype(np.float32) * 30
    expected = x.astype(TYPES[name]).astype(np.float16)
    gs.set_num_threads(threads)
    for view, stored in ((x, expected), (x.T, expected.T), (x[::3, 1:], expected[::3, 1:])):
        assert np.array_equal(gs.store(view, format=name)[0], stored)
    halves = x.astype(np.float16)
    assert np.array_equal(gs.store(halves, 3, from_exponent=3, format=name)[0], halves.astype(TYPES[name]).astype(np.float16))
    whole = gs.observe(x, format=name, detail="moments")
    assert whole.moments == gs.observe(x, detail="moments").moments and whole != gs.observe(x, detail="moments")
    gs.set_num_threads(0)


def test_rules_decide_by_the_bounds_of_their_format():
    x = np.random.default_rng(2).standard_normal(10_000).astype(np.float32) * 1e-5
    tight = {name: gs.Rule(f"amax:format={name}").decide(gs.observe(x, format=name)).exponent_delta for name in ("fp16", "e5m2", "e4m3")}
    for name, k in tight.items():
        assert gs.observe(x, k, format=name).overflowed == 0 < gs.observe(x, k + 1, format=name).overflowed
    assert tight["fp16"] >= tight["e5m2"] == tight["e4m3"] + 7
    # The window is that of the format: as few values as possible are subnormal, of at most one in a thousand.
    for name in TYPES:
        method = f"gs:format={name}"
        row, sites = gs.observe(x, format=name), gs.Sites(method, ["layer"])
        decision = gs.Rule(method).decide(row)
        assert sites.decide(0, row) == decision.exponent_delta and row.flushed_at(decision.exponent_delta) <= 1e-3
        # E4M3 has no room for another window in this tensor.
        assert (gs.Rule(f"{method},window=0").decide(row).exponent_delta < decision.exponent_delta) == (name == "e5m2")
        assert gs.Rule(f"gs:act={name}").decide(gs.observe(x)) == gs.Rule("gs").decide(gs.observe(x))
        for rule in (gs.Rule(method).decide, gs.Rule(method).decide_softmax_cast, lambda row: gs.Rule(method).decide_sum([(1.0, 0)], row)):
            with pytest.raises(ValueError, match=f'{method} decides in {name}, but the row was counted in fp16; pass format="{name}"'):
                rule(gs.observe(x))


def test_rows_keep_their_format():
    rows = {name: gs.observe([1e-3, 3.0, 1e6], format=name) for name in ("fp16", "e5m2", "e4m3")}
    assert [row.flushed for row in rows.values()] == [0, 0, 0] and [row.headroom for row in rows.values()] == [-4, -5, -12]
    for name, row in rows.items():
        assert row.format == name and gs.Stats.from_bytes(row.to_bytes()) == row
        assert (row + row).format == name
    # A row of before has no format among its words, and is of FP16.
    assert rows["fp16"].to_words()[281] == 0 and rows["e4m3"].to_words()[281] == 2
    with pytest.raises(ValueError, match="different flush conventions"):
        rows["fp16"] + rows["e5m2"]
    words = rows["e5m2"].to_words()
    words[281] = 3
    with pytest.raises(ValueError, match="3 is not a format of stores"):
        gs.Stats._from_words(words)
    for call in (gs.observe, gs.store):
        with pytest.raises(ValueError, match="'e3m4' is not a format of stores: choose fp16, e5m2, e4m3"):
            call([1.0], format="e3m4")
    assert repr(rows["e4m3"]).startswith("<Stats of 3 values at 2^0 in e4m3: ")
    assert repr(rows["fp16"]).startswith("<Stats of 3 values at 2^0: ")
