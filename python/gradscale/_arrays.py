"""Functions on arrays with numpy's conventions, around those of the extension."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _gradscale

DETAILS = {"none": 0, "counts": 1, "histogram": 2, "moments": 3}


def _detail(detail: str | int) -> int:
    """Returns the number of a level of detail, which is given by its name or as that number."""
    if isinstance(detail, str):
        try:
            return DETAILS[detail]
        except KeyError:
            raise ValueError(f"detail must be one of {', '.join(DETAILS)}, not {detail}") from None
    return int(detail)


def _flat(x: np.ndarray) -> np.ndarray:
    """Returns the elements in C order, without a copy if the array is contiguous."""
    return x.reshape(-1) if x.flags.c_contiguous else np.ascontiguousarray(x).reshape(-1)


def _floats(x: ArrayLike, what: str) -> np.ndarray:
    """Returns `x` as an array of float32 or float16; other numbers are rounded to float32."""
    x = np.asarray(x)
    if x.dtype in (np.float32, np.float16):
        return x.astype(x.dtype.newbyteorder("="), copy=False)
    if x.dtype.kind in "fiub":
        return x.astype(np.float32)
    raise TypeError(f"{what} takes real numbers, not {x.dtype}")


def _store_format(name: str) -> int:
    """Returns the number of a format of stores."""
    try:
        return _FORMATS.index(name)
    except ValueError:
        raise ValueError(f"{name!r} is not a format of stores: choose {', '.join(_FORMATS)}") from None


def observe(
    x: ArrayLike, exponent: int = 0, detail: str | int = "histogram", *, from_exponent: int = 0, format: str = "fp16"
) -> _gradscale.Stats:
    """Returns the statistics that a store of `x` at the exponent `exponent` would collect.

    `x`: float32 or float16, which stands at the scale 2^from_exponent; other numbers are rounded to float32 first. `detail`:
    "counts" (counts and amax), "histogram" (the histogram too), "moments" (the sums too). `format`: as for `store`.
    """
    code = _store_format(format)
    return _gradscale.Stats._of(_flat(_floats(x, "observe")), from_exponent, exponent, _detail(detail), code)


@overload
def store(
    x: ArrayLike, exponent: int = 0, *, from_exponent: int = 0, detail: str | int = "histogram", out: NDArray[Any] | None = None,
    row: None = None, format: str = "fp16",
) -> tuple[NDArray[Any], _gradscale.Stats]: ...
@overload
def store(
    x: ArrayLike, exponent: int = 0, *, from_exponent: int = 0, detail: str | int = "histogram", out: NDArray[Any] | None = None,
    row: NDArray[Any], format: str = "fp16",
) -> NDArray[Any]: ...
def store(x, exponent=0, *, from_exponent=0, detail="histogram", out=None, row=None, format="fp16"):
    """Stores `x` as float16 at the scale 2^exponent, and returns what that lost.

    `x` (float32 or float16) is at the scale 2^from_exponent. It is multiplied by 2^(exponent − from_exponent) in float32
    and rounded once, to nearest even. Returns the halves and their `Stats`. With `row`, an array of `ROW_WORDS` words (uint32 or
    int32; zeros at the beginning of a step), the statistics are merged into it, and only the halves are returned.

    `format`: "e5m2" or "e4m3" rounds to that format of 8 bits instead, and counts what it loses. All its values are halves;
    a float32 `out` has them, too, while for "fp16" it has the values before rounding.
    """
    code = _store_format(format)
    x = _floats(x, "store")
    y = np.empty(x.shape, np.float16) if out is None else out
    if y.shape != x.shape or y.dtype not in (np.float16, np.float32):
        raise TypeError(f"out must be float16 or float32 of shape {x.shape}, not {y.dtype} of {y.shape}")
    flat = _flat(y)
    words = np.zeros(_gradscale.ROW_WORDS, np.uint32) if row is None else row.view(np.uint32)
    _gradscale.store(_flat(x), from_exponent, flat, exponent, _detail(detail), words, code)
    if not np.shares_memory(flat, y):
        y[...] = flat.reshape(y.shape)
    return (y, _gradscale.Stats._from_words(words)) if row is None else y


# Formats of stores, by number.
_FORMATS = [name for name, *_ in _gradscale.store_formats()]
# Names of formats, by the name of a numpy dtype.
_NAMES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e5m2": "e5m2",
    "float8_e4m3fn": "e4m3",
    "float32": "fp32",
}
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def _named(format) -> tuple[str, np.dtype | None, np.dtype]:
    """Returns a format's name, the dtype that numpy has for it (or ml_dtypes, where that is installed), and that of its
    bits."""
    name = format if isinstance(format, str) else np.dtype(format).name
    base, _, rest = name.partition(",")
    base = _NAMES.get(base, base)
    width = _gradscale.width(base)
    bits = np.dtype(np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32)
    dtype = None
    if base in ("fp16", "fp32"):
        dtype = np.dtype({"fp16": np.float16, "fp32": np.float32}[base])
    elif base in ("bf16", "e5m2", "e4m3"):
        try:
            import ml_dtypes
        except ImportError:
            pass
        else:
            names = {"bf16": "bfloat16", "e5m2": "float8_e5m2", "e4m3": "float8_e4m3fn"}
            dtype = np.dtype(getattr(ml_dtypes, names[base]))
    return base + ("," + rest if rest else ""), dtype, bits


def cast(
    x: ArrayLike,
    format: str | DTypeLike = "fp16",
    *,
    rounding: Literal["nearest_even", "toward_zero", "stochastic"] = "nearest_even",
    exponent: int = 0,
    seed: int = 0,
    as_bits: bool = False,
    out: NDArray[Any] | None = None,
    return_counts: bool = False,
) -> Any:
    """Returns `x` times 2^exponent, rounded once to `format`.

    `x`: float32 or float64 of any shape (other numbers become float32 where that is exact, else float64); a scalar
    gives a scalar. `format`: "fp16", "bf16", "e5m2", "e4m3", "tf32", "fp32", "eXmY" with X exponent and Y mantissa
    bits, or a dtype. With the suffix ",saturating", values that are too large become the largest finite number.
    `rounding`: "nearest_even", "toward_zero", or "stochastic", whose random numbers depend only on `seed` and the index
    of an element.

    Returns float16 or float32, or the dtype of ml_dtypes where that is installed and has the format, or else patterns in
    uint8, uint16 or uint32; with `as_bits` always patterns. `out` takes the result. With `return_counts`, also a dict of how
    many elements were exact, inexact, underflowed (became zero), overflowed, or were invalid.
    """
    x = np.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        if x.dtype.itemsize > 8 or x.dtype.kind not in "fiub" and x.dtype.name not in _NAMES and not x.dtype.name.startswith("float8"):
            raise TypeError(f"cast takes real numbers, not {x.dtype}")
        x = x.astype(np.float64 if x.dtype.itemsize > 2 and x.dtype != np.float32 else np.float32)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    name, dtype, words = _named(format)
    kept = words if as_bits or dtype is None else dtype
    if out is not None and (out.shape != x.shape or out.dtype not in (kept, words)):
        raise TypeError(f"out must be {kept} of shape {x.shape}, not {out.dtype} of {out.shape}")
    y = np.empty(x.shape, kept) if out is None else out
    flat = _flat(y)
    counted = _gradscale.cast_into(_flat(x), flat.view(words), name, rounding, exponent, seed)
    if not np.shares_memory(flat, y):
        y[...] = flat.reshape(y.shape)
    y = y[()] if out is None else y
    return (y, dict(zip(("exact", "inexact", "underflow", "overflow", "invalid"), counted))) if return_counts else y


def decode(
    y: ArrayLike, format: str | DTypeLike | None = None, *, exponent: int = 0, out: NDArray[Any] | None = None
) -> Any:
    """Returns the values of patterns, or of an array of a small dtype, times 2^-exponent as float32.

    `y`: uint8, uint16 or uint32 with the patterns of `format`, or an array of a dtype that determines its format.
    """
    y = np.asarray(y)
    if format is None:
        if y.dtype.kind == "u":
            raise TypeError("bit patterns of unsigned integers need format=")
        format = y.dtype
    name, _, words = _named(format)
    if y.dtype.kind == "u" and y.dtype.itemsize < words.itemsize:
        raise TypeError(f"patterns of {name} do not fit {y.dtype}")
    flat = _flat(y)
    flat = flat if flat.dtype.kind == "u" else flat.view(_WORDS[flat.dtype.itemsize])
    if out is not None and (out.shape != y.shape or out.dtype != np.float32):
        raise TypeError(f"out must be float32 of shape {y.shape}, not {out.dtype} of {out.shape}")
    x = np.empty(y.shape, np.float32) if out is None else out
    values = _flat(x)
    _gradscale.decode_into(flat, values, name, exponent)
    if not np.shares_memory(values, x):
        x[...] = values.reshape(x.shape)
    return x[()] if out is None else x
