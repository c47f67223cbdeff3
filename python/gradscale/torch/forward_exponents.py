"""Exponents of activations in a training: when they begin, what they store, and when they end."""

from __future__ import annotations

import collections

import numpy as np
import torch

from .. import _gradscale
from . import forward_mode, fp8
from .store_formats import FP16, find, rounded
from .stores import AMAX, EXPONENT

#: Steps after which a forward pass is plain again, if no activation needs an exponent: after one that did, and at first.
PLAIN_AFTER_STEPS, PLAIN_AFTER_TRIAL_STEPS = 100, 10
#: Largest magnitude of an activation in a plain forward pass that follows one with exponents: a quarter of FP16's.
LARGEST_PLAIN = 65504.0 / 4
#: Free bits above the largest value of a store that no training has seen yet.
FREE_BITS = 2
#: Words of :func:`attach` for what happens with activations.
SETTINGS = "off", "repeat", "on"


def method_with(method: str, forward: str | None) -> str:
    """Returns a method's text with the setting of activations that a caller has passed."""
    if forward is None:
        return method
    if forward not in SETTINGS:
        raise ValueError(f"forward={forward!r} is unknown: choose {', '.join(map(repr, SETTINGS[:-1]))} or {SETTINGS[-1]!r}")
    if "forward=" in method:
        raise ValueError(f"the method {method!r} contains forward= already: leave out one of the two")
    return f"{method}{',' if ':' in method else ':'}forward={forward}"


def _with_infinities(halves, x, format):
    """Returns stored activations in which ±∞ of `x` is ±∞, also in a format that has NaN instead: masks consist of it."""
    return halves if format.has_infinity else torch.where(x.isinf(), x.half(), halves)


def _first_line(error):
    return f"{type(error).__name__}: {error}".splitlines()[0]


class ForwardExponents:
    """Base class of :class:`GradientScaling` with the part that concerns activations."""

    def _set_forward(self):
        """Reads the setting from the method."""
        self._take_forward(_gradscale.Sites(self.method))
        if self._forward != "off" and self._uses_operands:
            raise ValueError(f"{self.method} decides from operands, which activations do not have: leave out forward=")
        #: True while forward passes store activations with exponents.
        self._scales_forward = self._forward == "on"
        self._forward_slots: list[int] = []
        #: Steps since an activation needed an exponent, and whether one has since the exponents began.
        self._unneeded, self._needed = 0, False
        #: Why this model cannot run with such activations, and whether it has.
        self._forward_error: str | None = None
        self._forward_ran = False
        #: True if other code keeps what the forward pass saves for the backward pass, for example by computing it again.
        self._may_run_again = False
        #: Operators whose results have no exponents, because they exist only for halves.
        self._without_exponents: set[str] = set()

    def _take_forward(self, sites):
        """Takes from sites what their method does with activations and weights."""
        self._forward: str = sites.forward
        #: Formats of activations, and of the half copies of weights.
        self._activation_format, self._weight_format = (find(name) for name in sites.forward_formats)
        self._stores_forward_in_half: bool = (self._activation_format, self._weight_format) == (FP16, FP16)
        formats = sites.fp8_products
        if formats is not None:
            fp8.check_formats(sites.method, formats)
        #: True if matrix products of two operands in 8 bits are computed in FP8, and the format of gradients there.
        self._multiplies_fp8: bool = formats is not None
        #: Reasons why matrix products are computed from halves, None in FP8: of the last forward pass by name, and numbers of
        #: products of all backward passes.
        self._fp8_products: dict[str, str | None] = {}
        self._fp8_gradients: collections.Counter[str | None] = collections.Counter()
        self._gradient_format = FP16 if formats is None else find(formats[0])

    def _forward_mode(self, model):
        """Returns the context of a forward pass whose activations have exponents; None for a plain one."""
        if not self._scales_forward or self._forward_error or forward_mode.is_running(self):
            return None
        return forward_mode.ForwardMode(self, self._paths_in(model), model.training or torch.is_grad_enabled())

    def _paths_in(self, *models):
        """Returns the paths of all modules of attached models, or of their copies, by id."""
        numbers = {id(model): number for number, model in self._live_models()}
        paths = {}
        for model in models or [model for _, model in self._live_models()]:
            number = numbers.get(id(model), 1)
            for path, module in model.named_modules(prefix="" if number == 1 else f"model{number}"):
                paths.setdefault(id(module), path)
        return paths

    def _follow_checkpoints(self):
        """Lets nodes that run a part of the forward pass again do so with exponents of activations."""
        if not self._scales_forward or self._forward_error:
            return
        again = [n for n in self._names.nodes() if self._may_run_again or n.name() == "CheckpointFunctionBackward"]
        paths = self._paths_in() if again else {}
        for node in again:
            forward_mode.recompute_with_exponents(node, self, paths)

    def _store_forward(self, name, x, start, training, kind="forward"):
        """Rounds the f32 `x`, which is at the exponent `start`, at a site of the forward pass: that of an activation, or of a
        weight. Returns halves and their exponent. Outside of training the site decides and counts nothing."""
        self._open_once(x.device)
        if not training:
            format = self._weight_format if kind == "weight" else self._activation_format
            exponent = self._exponent_of_evaluation(self._slots.get(name), x, start, format)
            return _with_infinities(rounded(self._stores.scaled(x, start, exponent), format), x, format), exponent
        slot = self._slot(name, 1 + (self._slots.get(name) in self._stored), kind=kind)
        if self._decides_in_step[slot]:
            row = self._stores.look(x, start, self._formats[slot])
            self._decided(slot, self._sites.decide(slot, row, self._stores.number(start)))
        self._note(slot)
        # Activations may outlive the step, so on a device they have exponents of their own.
        kept = torch.empty((), dtype=torch.int32, device=x.device) if self._stores.late else None
        halves = _with_infinities(self._stores.store(x, start, slot, kept), x, self._formats[slot])
        return halves, self._stores.exponent(slot) if kept is None else kept

    def _exponent_of_evaluation(self, slot, x, start, format):
        """Returns the exponent of a store outside of training: that of the site. Formats of 8 bits have little room, and a
        batch of an evaluation cannot be repeated, so there it is less where the values would overflow."""
        exponent = 0 if slot is None else int(self._sites.exponents[slot])
        if format is FP16:
            return exponent
        headroom = self._stores.look(x, start, format).headroom
        if headroom is None:
            return exponent
        most = self._stores.number(start) + headroom
        return most - FREE_BITS if slot is None else min(exponent, most)

    def _first_non_finite(self, rows, order):
        """Returns the first site at which values were not finite, and whether a finite value overflowed there."""
        for slot in order:
            row = _gradscale.Stats._from_words(rows[slot])
            if row.overflowed or row.infinite or row.nan:
                return slot, bool(row.overflowed)
        return None, False

    def _suspects_activations(self, rows, found, order):
        """Returns True if a step is not finite, no gradient has overflowed, and activations have no exponents yet."""
        if self._forward != "repeat" or self._scales_forward or self._forward_error or not found or not self._models:
            return False
        _, overflowed = self._first_non_finite(rows, order)
        if not overflowed and self._compiled:
            self._warn(
                "gradients were not finite before any of them overflowed. If an activation has overflowed, an exponent cures it, but not in"
                " a compiled model: run a few steps without torch.compile, or compute that layer in float32",
                kind="compiled forward",
            )
        return not overflowed and not self._compiled

    def _activation_overflowed(self, rows, order):
        """Returns True if the first values that were not finite came from an overflow of an activation at its site."""
        slot, overflowed = self._first_non_finite(rows, order)
        return overflowed and slot in self._forward_slots

    def _begin_forward(self):
        """Gives activations exponents, from the next forward pass on."""
        self._scales_forward, self._unneeded, self._needed = True, 0, False
        self._sites.scale_forward()

    def _end_forward_step(self, outcome, rows):
        """Ends a step: forward passes become plain again if no activation needs an exponent any more."""
        if self._forward != "repeat" or not self._scales_forward or outcome.kind == "repeat":
            return
        amax, exponents = rows[self._forward_slots, AMAX].view(np.float32), rows[self._forward_slots, EXPONENT].view(np.int32)
        if (np.ldexp(amax, -exponents) > LARGEST_PLAIN).any():
            self._unneeded, self._needed = 0, True
            return
        self._unneeded += 1
        # A repeat that did not help: what is not finite has another cause.
        useless = not outcome.stepped and not self._needed
        if useless or self._unneeded >= (PLAIN_AFTER_STEPS if self._needed else PLAIN_AFTER_TRIAL_STEPS):
            self._scales_forward = False

    def _describe_forward(self):
        """Returns a sentence about activations for a report."""
        if self._forward_error:
            return f"activations: without exponents, because the model cannot run with them ({self._forward_error})"
        if not self._scales_forward:
            return "activations: without exponents at present, because none needs one any more; their last rows:"
        return "activations: with exponents" + (", since one has overflowed:" if self._forward == "repeat" else ":")

    def _load_forward(self, state):
        """Restores what a checkpoint says of activations; None if they had no exponents."""
        self._take_forward(self.sites)
        self._scales_forward, self._forward_slots, self._unneeded, self._needed = self._forward == "on", [], 0, False
        if state is not None:
            self._scales_forward, self._forward_slots = state["scales"], list(state["slots"])
            self._unneeded, self._needed = state["unneeded"], state["needed"]

    def _run_forward(self, model, run, *args, **kwargs):
        """Runs a model's forward function, with exponents of activations where they are needed. If an operator of the
        model cannot read such activations, it runs without."""
        mode = self._forward_mode(model)
        if mode is None:
            return run(*args, **kwargs)
        before = None if self._forward_ran else self._before()
        try:
            with mode:
                out = run(*args, **kwargs)
            self._forward_ran = True
            return out
        except (RuntimeError, TypeError) as error:
            if before is None or isinstance(error, fp8.UnsupportedDeviceError):
                raise
            failed = error
        if not self._stores_forward_in_half:
            raise RuntimeError(
                f"this model cannot store activations or weights in 8 bits ({_first_line(failed)}): use grad= alone, which stores"
                " gradients in 8 bits"
            ) from failed
        self._again(before)
        out = run(*args, **kwargs)
        self._forward_error = _first_line(failed)
        self._warn(
            f"an activation overflows float16, and this model cannot run with exponents of activations ({self._forward_error}): compute"
            " that layer in float32",
            kind="forward",
        )
        return out
