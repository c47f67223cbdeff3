"""The extension: what is decided and computed, in Rust."""

from __future__ import annotations

import os
from typing import Any, Literal, Sequence, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "METHOD_SYNTAX", "ROW_WORDS", "VERSION", "Decision", "LossScale", "NoDecisionError", "Outcome", "Rule", "Sites", "Stats",
    "baselines", "cast_into", "conv_terms", "decode_into", "propose_fixed", "replay", "set_num_threads", "store", "store_formats",
    "store_site", "width",
]

VERSION: str
METHOD_SYNTAX: str
"""How methods are written, in one line."""
ROW_WORDS: int
"""Words of a row of statistics: core's 280, the exponent at which its values were seen, the number of its format, and zeros."""

_StoreFormat = Literal["fp16", "e5m2", "e4m3"]
_Detail = Literal["none", "counts", "histogram", "moments"]

class NoDecisionError(ValueError):
    """Error of a row that allows no decision: all zero, not finite, or observed in too little detail."""

@final
class Stats:
    """Statistics row: counts, largest magnitude, histogram and sums of the values of one store, in FP16 or a format of 8 bits.

    Rows of one format, exponent and detail merge (``+``), in any order, to what all their values would have given.
    """

    @staticmethod
    def _of(x: NDArray[Any], from_exponent: int, exponent: int, detail: int, format: int = 0) -> Stats: ...
    @staticmethod
    def _from_words(words: NDArray[np.uint32]) -> Stats: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Stats:
        """Returns the row that `to_bytes` gave. ValueError for one that no store could have written."""
    def to_bytes(self) -> bytes:
        """Returns the row as `ROW_WORDS` words of 32 bits, low byte first."""
    def to_words(self) -> NDArray[np.uint32]:
        """Returns the row as words, as `Sites.finish` takes them."""
    def merge(self, other: Stats) -> Stats:
        """Returns the row of both sets of values. ValueError if format, exponent or detail differ."""
    def __add__(self, other: Stats, /) -> Stats: ...
    def __radd__(self, other: Stats, /) -> Stats: ...
    @property
    def count(self) -> int:
        """Number of values that the row observed."""
    @property
    def zeros(self) -> int:
        """Number of values that were ±0 before the store."""
    @property
    def infinite(self) -> int:
        """Number of values that were ±∞ before the store."""
    @property
    def nan(self) -> int:
        """Number of values that were NaN before the store."""
    @property
    def flushed(self) -> int:
        """Number of non-zero values that became ±0 by the store."""
    @property
    def overflowed(self) -> int:
        """Number of finite values too large for the format."""
    @property
    def subnormal(self) -> int:
        """Number of values that became subnormal by the store and so lost digits."""
    @property
    def nonzero(self) -> int:
        """Number of finite values that were not zero."""
    @property
    def amax(self) -> float:
        """Largest finite magnitude, times 2^exponent; 0 if there is none."""
    @property
    def exponent(self) -> int:
        """Exponent at which the values were stored."""
    @property
    def format(self) -> _StoreFormat:
        """Format of the stores that the row counted."""
    @property
    def detail(self) -> _Detail:
        """Level of detail of the row's statistics."""
    @property
    def histogram(self) -> NDArray[np.uint32] | None:
        """256 bins: bin i counts values with 2^(i − 128) < |u| ≤ 2^(i − 127)."""
    @property
    def moments(self) -> tuple[float, float, float, float] | None:
        """Moments of the values u: Σu, Σu², Σ ln|u|, Σ ln²|u|; None without them."""
    @property
    def headroom(self) -> int | None:
        """Largest k at which amax · 2^k does not overflow; None if all is zero."""
    def flushed_at(self, exponent_delta: int) -> float | None:
        """Returns the share of the non-zero values that flushes at 2^exponent_delta times the scale; None without a
        histogram."""
    def lost_at(self, exponent_delta: int) -> float | None:
        """Returns the share of Σ|u| that flushes at 2^exponent_delta times the scale, within a factor of 2."""

@final
class Decision:
    """Decision of a site's next exponent from a statistics row."""

    @property
    def exponent_delta(self) -> int:
        """Exponent relative to that at which the row was measured."""
    @property
    def limited_by(self) -> str:
        """Limit that bound the decision: threshold, normal range, overflow, range, one."""
    @property
    def flushed_predicted(self) -> float:
        """Share of the non-zero values that is expected to flush; NaN where a rule has no model."""

@final
class Rule:
    """Rule of gradient scaling, without a site's memory: "gs", "gs:paper", "gs:paper-literal", "gs:authors", "amax",
    and their options as `METHOD_SYNTAX` has them."""

    def __new__(cls, method: str = "gs") -> Rule: ...
    @property
    def method(self) -> str: ...
    def decide(self, row: Stats) -> Decision:
        """Decides the exponent from the row of a store; raises NoDecisionError if the row allows none."""
    def decide_matmul(self, dy: Stats, w: Stats, terms: tuple[float, float], exponent: int = 0) -> Decision:
        """Decides by the paper's Theorem 1: the data gradient of a product, from rows with sums of the incoming
        gradient and of the weights, and how many terms make one element, typically and at most. `exponent`: that of
        `dy`."""
    def decide_softmax_cast(self, row: Stats) -> Decision:
        """Decides by the paper's Theorem 2: the cast after a softmax, from a row with sums."""
    def decide_sum(self, parts: Sequence[tuple[float, int]], total: Stats) -> Decision:
        """Decides the exponent of a sum of gradients, each given by its largest magnitude and its exponent, from the
        row of the sum."""
    def decide_concat(self, parts: Sequence[tuple[float, int]], total: Stats) -> Decision:
        """Decides the exponent of the gradient of a tensor that was split, from the rows of its parts."""

@final
class Outcome:
    """Outcome of a step, or of an attempt at it. True if parameters are to be updated."""

    @property
    def kind(self) -> Literal["stepped", "repeat", "skipped"]: ...
    @property
    def stepped(self) -> bool: ...
    @property
    def site(self) -> int | None:
        """Index of the first site at which values were not finite."""
    @property
    def site_name(self) -> str | None: ...
    @property
    def non_finite(self) -> Literal["overflow", "infinite", "nan"] | None:
        """Kind of the values at the first such site; only an overflow is for certain a problem of scales."""
    @property
    def exponent(self) -> int | None:
        """Exponent of the overflowed site after the step."""
    @property
    def cause(self) -> Literal["not_finite", "outlier", "again", "repeats"] | None:
        """Why a step was skipped: no scale mends it; left out by `outliers=`; it would have had to be run again; it was,
        three times."""
    def __bool__(self) -> bool: ...

@type_check_only
class SiteReport(TypedDict):
    name: str
    exponent: int
    flushed: float
    flushed_predicted: float | None
    limited_by: str | None
    overflows: int
    subnormal: float
    log2_amax: float | None
    format: _StoreFormat
    detail: _Detail

@type_check_only
class PastDecision(TypedDict):
    before: int | None
    exponent: int
    limited_by: str
    flushed_predicted: float
    trigger: Literal["first", "interval", "overflow", "after_skip", "repeat"]

def baselines() -> list[tuple[str, str, str]]:
    """Loss scales by the names of who has them: name, the method that it stands for, and what sets it apart."""

@final
class Sites:
    """Cast sites of a training under one method: names, exponents and decisions of all places where gradients become
    half.

    A step reads `exponents`, `details` and `decides_in_step`, and passes its rows to `finish`. `deferred`: rows are read a step
    later, so no site can decide inside a step or see its batch again: every site then decides from its rows, and remembers
    longer what was lost.
    """

    def __new__(
        cls, method: str = "gs", names: Sequence[str] = ..., *, deferred: bool = False, total_steps: int | None = None
    ) -> Sites:
        """`method`: "gs", "gs:interval=5,gamma=1e-4", "amax:history=16", "dynamic", "fixed:128" …: see `METHOD_SYNTAX`.
        `total_steps`: the length of the training, for an interval that is a part of it
        ("dynamic:interval=steps/20", "torch-20th")."""
    def add(self, name: str, kind: Literal["site", "forward", "weight", "parameter"] = "site", *, shared: bool = False) -> int:
        """Another site; its number. `shared`: several calls in a step store there. Sites that store in half in the forward
        pass ("forward", "weight") and gradients of parameters ("parameter") stay at exponent 0 and can only be blamed; the
        former decide after `scale_forward`."""
    @property
    def forward(self) -> Literal["off", "repeat", "on"]:
        """What the method does with activations: `forward=` in its text, ``"on"`` if it stores them in 8 bits, and ``"off"`` if it
        repeats no batch."""
    @property
    def forward_formats(self) -> tuple[_StoreFormat, _StoreFormat]:
        """Formats in which activations and weights are stored once they have exponents."""
    @property
    def fp8_products(self) -> tuple[_StoreFormat, _StoreFormat, _StoreFormat] | None:
        """Formats of gradients, activations and weights if the method has ``products=fp8``, else None."""
    def scale_forward(self) -> None:
        """Lets sites of the kinds "forward" and "weight" decide exponents from now on: the largest up to 0 that does not overflow, and
        with ``forward=on`` those that scale small activations up, too. Nothing changes under a loss scale. With
        ``forward=repeat`` call it after the first overflow of an activation."""
    def mark_shared(self, index: int) -> None:
        """Marks a site at which several calls in a step store from now on."""
    def __len__(self) -> int: ...
    @property
    def names(self) -> list[str]: ...
    def index(self, name: str) -> int:
        """Returns the number of a site. KeyError if there is none of that name."""
    @property
    def method(self) -> str: ...
    @property
    def deferred(self) -> bool: ...
    @property
    def exponents(self) -> NDArray[np.int32]:
        """Exponents of all sites for the coming step: gradients are stored times 2^exponent."""
    @property
    def details(self) -> NDArray[np.int32]:
        """Level of detail that the row of each site must have in the coming step: 1 counts, 2 the histogram too, 3 the
        sums too."""
    @property
    def formats(self) -> list[_StoreFormat]:
        """Format in which each site stores, to be passed to `store` and `observe`."""
    @property
    def decides_in_step(self) -> NDArray[np.bool_]:
        """Flags of the sites that decide inside the coming step: look at the values first, `decide`, then store."""
    @property
    def loss_exponent(self) -> int:
        """Exponent of the loss scale; 0 under gradient scaling."""
    @property
    def can_repeat(self) -> bool:
        """True if the method repeats a batch that overflows."""
    def decide(
        self, index: int, decision: Stats | Decision | None, incoming: int = 0, *, measured_at: int | None = None
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
        failed_attempts: int | None = ...,
        micro_batches: int = 1,
    ) -> Outcome:
        """Takes the rows of an attempt at a step: uint32 of shape (sites, ROW_WORDS), zeros where nothing was stored.

        `found_inf`: some gradient of a parameter is not finite (None: if a row says so). `order`: sites in the order of
        their stores; without it that of their numbers. `repeatable`: the batch can be run again, and `failed_attempts` at it
        (default 0) have failed before; None: what is not finite was so before anything was scaled, and no repeat mends it.
        `micro_batches`: micro-batches that the rows have added up.
        """
    def row(self, index: int) -> Stats | None:
        """Returns the last row of a site, or None if it has not stored."""
    def loss_scale_warning(self) -> tuple[Literal["collapsed", "flushes"], str] | None:
        """Returns what is wrong with a dynamic loss scale after the last step, and a sentence about it: it has fallen
        below 2^-10, or flushes more than 1 % of the gradients that a larger scale would have kept. None for other
        methods."""
    def report(self, kind: Literal["site", "forward", "weight"] = "site") -> list[SiteReport]:
        """Returns a report of each site of that kind that has stored."""
    def history(self, index: int) -> list[PastDecision]:
        """Returns the last eight decisions of a site, oldest first."""
    def __copy__(self) -> Sites: ...
    def __deepcopy__(self, _memo: Any, /) -> Sites: ...
    def state_dict(self) -> dict[str, Any]:
        """Returns the state for a checkpoint: text and integers."""
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there, bit for bit, by the method saved. ValueError if a site that is here has another name there;
        nothing has changed then."""

@final
class LossScale:
    """Loss-scale schedule with its whole state: "fixed:128", "dynamic", "dynamic:10", "delayed", "logmax", "torch" …"""

    def __new__(cls, method: str = "dynamic", *, total_steps: int | None = None) -> LossScale:
        """Begins the loss scale of a method; `total_steps`: as for `Sites`."""
    @property
    def method(self) -> str: ...
    @property
    def exponent(self) -> int: ...
    @property
    def scale(self) -> float:
        """The loss scale, 2^exponent."""
    def update(self, found_inf: bool = False, *, amax: float | None = None, exponent: int = 0) -> None:
        """Takes the end of a step, once for each, skipped ones included. `amax`, for "delayed" and "logmax": the largest
        gradient magnitude, times 2^exponent."""
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...

@type_check_only
class ReplayedSite(TypedDict):
    first: int
    last: int
    steps: int
    flushed: float
    flushed_worst: float
    subnormal: float

@type_check_only
class Replay(TypedDict):
    method: str
    skipped: int
    repeats: int
    steps: list[dict[str, Any]]
    sites: dict[str, ReplayedSite]

def conv_terms(
    out_channels: int, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int, transposed: bool
) -> tuple[float, float]:
    """Returns how many products make one element of a convolution's data gradient, typically and at most: the `terms`
    of :meth:`Rule.decide_matmul`."""

def propose_fixed(amax: float, exponent: int = 0) -> int | None:
    """Returns the exponent of the largest fixed loss scale for gradients whose largest magnitude was amax ·
    2^-exponent; None if that is zero or not finite."""

def replay(path: str | os.PathLike[str], method: str | None = None) -> Replay:
    """Plays a trace of ``gradscale train --trace`` through `method` (None: that which made it).

    ValueError with file, line and cause for what is no trace, OSError for a file that cannot be read."""

def store_formats() -> list[tuple[_StoreFormat, list[int], int, int, bool]]:
    """Returns the formats of stores by number: name; the least magnitudes, as bits of f32, that do not flush, that are normal
    and that overflow; bits of the mantissa; exponent of the smallest normal number; whether there is ∞."""

def set_num_threads(threads: int) -> None:
    """Use this many threads for arrays from now on; 0 means one for each core. The bits are the same for any number."""

def cast_into(x: NDArray[Any], y: NDArray[Any], format: str, round: str, exponent: int, seed: int) -> list[int]: ...
def decode_into(x: NDArray[Any], y: NDArray[np.float32], format: str, exponent: int) -> None: ...
def store(
    x: NDArray[Any],
    from_exponent: int,
    y: NDArray[Any] | None,
    exponent: int,
    detail: int,
    row: NDArray[np.uint32],
    format: int = 0,
) -> None: ...
def store_site(
    x: NDArray[Any],
    y: NDArray[Any] | None,
    rows: NDArray[np.uint32],
    control: NDArray[np.int32],
    source: int,
    site: int,
    format: int = 0,
) -> None: ...
def width(format: str) -> int: ...
