"""The extension: what is decided and computed, in Rust."""

from __future__ import annotations

import os
from typing import Any, Literal, Sequence, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

VERSION: str
METHODS: str
"""How methods are written, in one line."""
ROW_WORDS: int
"""Words of a row of statistics: core's 280, the exponent at which its values were seen, and zeros."""

Detail = Literal["none", "counts", "full", "moments"]

class NoDecision(ValueError):
    """A row gives no decision: all zero, not finite, or observed in too little detail."""

class Stats:
    """What one store of FP16 values saw: counts, largest magnitude, histogram, sums.

    Rows of one exponent and detail merge (``+``), in any order, to what all their values would have given.
    """

    @staticmethod
    def of(x: ArrayLike, exponent: int = 0, detail: Detail | int = "full", *, start: int = 0) -> Stats:
        """What a store of `x` at the scale 2^exponent would see.

        `x`: float32 or float16, which stands at the scale 2^start; other numbers are rounded to float32 first. `detail`:
        "counts" (counts and amax), "full" (the histogram too), "moments" (the sums too).
        """
    @staticmethod
    def _of(x: NDArray[Any], start: int, exponent: int, detail: int) -> Stats: ...
    @staticmethod
    def _from_words(words: NDArray[np.uint32]) -> Stats: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Stats:
        """The row that `to_bytes` gave. ValueError for one that no store could have written."""
    def to_bytes(self) -> bytes:
        """The row as `ROW_WORDS` words of 32 bits, low byte first."""
    def to_words(self) -> NDArray[np.uint32]:
        """The row as words, as `Sites.finish` takes them."""
    def merge(self, other: Stats) -> Stats:
        """The row of both sets of values. ValueError if exponent or detail differ."""
    def __add__(self, other: Stats) -> Stats: ...
    @property
    def count(self) -> int:
        """Values seen."""
    @property
    def zeros(self) -> int:
        """±0 before the store."""
    @property
    def infinite(self) -> int:
        """±∞ before the store."""
    @property
    def nan(self) -> int:
        """NaN before the store."""
    @property
    def flushed(self) -> int:
        """Non-zero values that became ±0."""
    @property
    def overflowed(self) -> int:
        """Finite values too large for FP16."""
    @property
    def subnormal(self) -> int:
        """Results with fewer digits than usual."""
    @property
    def nonzero(self) -> int:
        """Finite values that are not zero."""
    @property
    def amax(self) -> float:
        """Largest finite magnitude, times 2^exponent; 0 if there is none."""
    @property
    def exponent(self) -> int:
        """The exponent at which the values were seen."""
    @property
    def detail(self) -> Detail:
        """How much the row observed."""
    @property
    def bins(self) -> NDArray[np.uint32] | None:
        """256 bins: bin i counts values with 2^(i − 128) < |u| ≤ 2^(i − 127)."""
    @property
    def moments(self) -> tuple[float, float, float, float] | None:
        """Σu, Σu², Σ ln|u|, Σ ln²|u|."""
    @property
    def room_above(self) -> int | None:
        """The largest k at which amax · 2^k does not overflow; None if all is zero."""
    def flushed_at(self, k: int) -> float | None:
        """Which share of the non-zero values flushes at 2^k times the scale; None without a histogram."""
    def lost_at(self, k: int) -> float | None:
        """Which share of Σ|u| flushes there, within a factor of 2."""

class Choice:
    """A decision."""

    @property
    def k(self) -> int:
        """Exponent relative to that at which the row was measured."""
    @property
    def bound(self) -> str:
        """What it was bound by: threshold, normal range, overflow, range, one."""
    @property
    def flushed(self) -> float:
        """The share of the non-zero values that is expected to flush; NaN where a rule has no model."""

class Rule:
    """A rule of gradient scaling, without a site's memory: "gs", "gs:paper", "gs:paper-literal", "gs:authors", "amax", and
    their options as `METHODS` has them."""

    def __init__(self, method: str = "gs") -> None: ...
    @property
    def method(self) -> str: ...
    def decide(self, row: Stats) -> Choice:
        """From the row of a store. NoDecision if it gives none."""
    def product(self, dy: Stats, w: Stats, terms: tuple[float, float], exponent: int = 0) -> Choice:
        """The paper's Theorem 1: the data gradient of a product, from rows with sums of the incoming gradient and of the
        weights, and how many terms make one element, typically and at most. `exponent`: that of `dy`."""
    def softmax_cast(self, row: Stats) -> Choice:
        """The paper's Theorem 2: the cast behind a softmax, from a row with sums."""
    def branch(self, of: Sequence[tuple[float, int]], total: Stats) -> Choice:
        """A sum of gradients, each given by its largest magnitude and its exponent, and the row of the sum."""
    def split(self, of: Sequence[tuple[float, int]], total: Stats) -> Choice:
        """The gradient of what was split, likewise."""

class Outcome:
    """How a step, or an attempt at it, ended. True if parameters are to be updated."""

    @property
    def kind(self) -> Literal["stepped", "repeat", "skipped"]: ...
    @property
    def stepped(self) -> bool: ...
    @property
    def site(self) -> int | None:
        """The first site at which values stopped being finite."""
    @property
    def name(self) -> str | None: ...
    @property
    def problem(self) -> Literal["overflow", "infinite", "nan"] | None:
        """What went wrong there; only an overflow is for certain a problem of scales."""
    @property
    def exponent(self) -> int | None:
        """The exponent in force there."""
    @property
    def cause(self) -> Literal["not_finite", "outlier", "again", "repeats"] | None:
        """Why a step was skipped: no scale mends it; left out by `outliers=`; it would have had to be run again; it was,
        three times."""
    def __bool__(self) -> bool: ...

class SiteReport(TypedDict):
    name: str
    exponent: int
    flushed: float
    flushed_predicted: float | None
    bound: str | None
    overflows: int
    subnormal: float
    log2_amax: float | None
    detail: Detail

class Decision(TypedDict):
    before: int | None
    exponent: int
    bound: str
    flushed: float
    trigger: Literal["first", "interval", "overflow", "after a skip", "repeat"]

def baselines() -> list[tuple[str, str, str]]:
    """Loss scales by the names of who has them: name, the method that it stands for, and what sets it apart."""

class Sites:
    """Names, exponents and decisions of all places where gradients become half, under one method.

    A step asks `exponents`, `details` and `at_once`; hands in its rows with `finish`. `late`: rows come a step late, so no
    site can decide inside a step or see its batch again: every site then decides from its rows, and remembers longer what
    was lost.
    """

    def __init__(
        self, method: str = "gs", names: Sequence[str] = (), *, late: bool = False, steps: int | None = None
    ) -> None:
        """`method`: "gs", "gs:interval=5,gamma=1e-4", "amax:history=16", "dynamic", "fixed:128" …: see `METHODS`. `steps`: the
        length of the training, for an interval that is a part of it ("dynamic:interval=steps/20", "torch-20th")."""
    def add(self, name: str, kind: Literal["site", "forward", "parameter"] = "site", *, shared: bool = False) -> int:
        """Another site; its number. `shared`: several calls in a step store there. Sites that store in half in the forward
        pass ("forward") and gradients of parameters ("parameter") stay at exponent 0; they can only be blamed."""
    def share(self, index: int) -> None:
        """From now on several calls in a step store there."""
    def __len__(self) -> int: ...
    @property
    def names(self) -> list[str]: ...
    def index(self, name: str) -> int:
        """The number of a site. KeyError if there is none of that name."""
    @property
    def method(self) -> str: ...
    @property
    def late(self) -> bool: ...
    @property
    def exponents(self) -> NDArray[np.int32]:
        """Exponents in force for the coming step: gradients are stored times 2^exponent."""
    @property
    def details(self) -> NDArray[np.int32]:
        """How much the row of each site is to observe in the coming step: 1 counts, 2 the histogram too, 3 the sums too."""
    @property
    def at_once(self) -> NDArray[np.bool_]:
        """Which sites decide inside the coming step: look at the values first, `decide`, then store."""
    @property
    def loss_exponent(self) -> int:
        """The exponent of the loss scale; 0 under gradient scaling."""
    @property
    def repeats(self) -> bool:
        """Whether a batch that overflows is to be run again."""
    def decide(
        self, index: int, verdict: Stats | Choice | None, incoming: int = 0, *, measured_at: int | None = None
    ) -> int:
        """Decides at once, by the exact rule from the row of a first run, or what another rule chose relative to the
        exponent `measured_at`. Returns the exponent to store with: without a decision that in force, or `incoming` where
        there was none yet."""
    def finish(
        self,
        rows: NDArray[np.uint32],
        found_inf: bool | None = None,
        *,
        order: Sequence[int] | None = None,
        repeatable: bool = False,
        failed: int | None = 0,
        micro: int = 1,
    ) -> Outcome:
        """Takes the rows of an attempt at a step: uint32 of shape (sites, ROW_WORDS), zeros where nothing was stored.

        `found_inf`: some gradient of a parameter is not finite (None: if a row says so). `order`: sites in the order of
        their stores; without it that of their numbers. `repeatable`: the batch can be run again, and `failed` attempts at
        it have failed before; None: what is not finite was so before anything was scaled, and no repeat mends it.
        `micro`: micro-batches that the rows have added up.
        """
    def row(self, index: int) -> Stats | None:
        """The last row of a site, if it has stored."""
    def loss_scale_warning(self) -> tuple[Literal["collapsed", "flushes"], str] | None:
        """What is wrong with a dynamic loss scale after the last step, and a sentence about it: it has fallen below 2^-10, or
        flushes more than 1 % of the gradients that a larger scale would have kept. None for other methods."""
    def report(self) -> list[SiteReport]:
        """What is known of each site that has stored."""
    def history(self, index: int) -> list[Decision]:
        """The last eight decisions of a site, oldest first."""
    def state_dict(self) -> dict[str, Any]:
        """All that a checkpoint must keep: text and integers."""
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there, bit for bit, by the method saved. ValueError if a site that is here has another name there;
        nothing has changed then."""

class LossScale:
    """A loss-scale schedule with its whole state: "fixed:128", "dynamic", "dynamic:10", "delayed", "logmax", "torch" …"""

    def __init__(self, method: str = "dynamic", *, steps: int | None = None) -> None:
        """`steps`: as for `Sites`."""
    @property
    def method(self) -> str: ...
    @property
    def exponent(self) -> int: ...
    @property
    def scale(self) -> float:
        """2^exponent."""
    def update(self, found_inf: bool = False, *, amax: float | None = None, exponent: int = 0) -> None:
        """Takes the end of a step, once for each, skipped ones included. `amax`, for "delayed" and "logmax": the largest
        gradient magnitude, times 2^exponent."""
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...

class ReplayedSite(TypedDict):
    first: int
    last: int
    steps: int
    flushed: float
    flushed_worst: float
    subnormal: float

class Replay(TypedDict):
    method: str
    skipped: int
    repeats: int
    steps: list[dict[str, Any]]
    sites: dict[str, ReplayedSite]

def conv_terms(
    out_channels: int, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int, transposed: bool
) -> tuple[float, float]:
    """How many products make one element of a convolution's data gradient, typically and at most: the `terms` of
    :meth:`Rule.product`."""

def propose_fixed(amax: float, exponent: int = 0) -> int | None:
    """The exponent of the largest fixed loss scale for gradients whose largest magnitude was amax · 2^-exponent; None if
    that is zero or not finite."""

def replay(path: str | os.PathLike[str], method: str | None = None) -> Replay:
    """Plays a trace of ``gradscale train --trace`` through `method` (None: that which made it).

    ValueError with file, line and cause for what is no trace, OSError for a file that cannot be read."""

def set_num_threads(threads: int) -> None:
    """Use this many threads for arrays from now on; 0 means one for each core. The bits are the same for any number."""

def cast_into(x: NDArray[Any], y: NDArray[Any], format: str, round: str, exponent: int, seed: int) -> list[int]: ...
def decode_into(x: NDArray[Any], y: NDArray[np.float32], format: str, exponent: int) -> None: ...
def store(
    x: NDArray[Any], start: int, y: NDArray[Any] | None, exponent: int, detail: int, row: NDArray[np.uint32]
) -> None: ...
def store_site(
    x: NDArray[Any],
    y: NDArray[Any] | None,
    rows: NDArray[np.uint32],
    control: NDArray[np.int32],
    source: int,
    site: int,
) -> None: ...
def width(format: str) -> int: ...
