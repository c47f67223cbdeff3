"""Watch over torch's own loss scale: warns once when it has collapsed, or flushes gradients, and says why.

A loss scale falls by one binade with each batch that is not finite, and rises by one after `growth_interval` finite batches
in a row. So one bad batch in fewer steps makes it fall without limit (docs/guide/control.md). ``torch.amp.GradScaler`` reports
nothing of this.
"""

from __future__ import annotations

import math
import warnings

import torch

from .grad_scaler import GradScaler

#: Loss scale below which it counts as collapsed, as for the package's own dynamic scales: the networks that were measured need
#: at least that.
MIN_SCALE = 2.0**-10
#: Share of the gradients that may flush before a warning, as for the package's own dynamic scales.
MAX_FLUSHED = 0.01
#: Steps between two looks at the gradients, which read all of them once. A look each step would cost more than unscaling.
LOOK_INTERVAL = 20
#: Steps between two looks at the scale on a GPU, for which the host waits. A collapse takes longer.
READ_INTERVAL = 16
#: Steps in a row whose failure suggests that weights are not finite. From torch's first scale 27 lead below `MIN_SCALE`, and a
#: scale that fell by 2 before counts, too.
ALL_BAD = 25


class LossScaleWarning(UserWarning):
    """Warning that a loss scale is too small: see :func:`watch`."""


def watch(scaler: torch.amp.GradScaler) -> Watch:
    """Warns once when the loss scale of a ``torch.amp.GradScaler`` has fallen below 2^-10, and once when it flushes more
    than 1 % of the gradients of weights, with the reason. Call it once, before the loop. Returns a :class:`Watch`, whose
    ``stop()`` ends it.

    The scaler is this object as before, with two of its methods wrapped, ``unscale_`` and ``update``; PyTorch itself is not
    changed. Flushed gradients are estimated every 20th step from those that are as small as half can be, so only where
    ``unscale_`` or ``step`` unscales before the optimizer: not for fused optimizers.

    >>> import torch
    >>> from gradscale.torch import watch
    >>> scaler = torch.amp.GradScaler("cpu")
    >>> watching = watch(scaler)
    >>> print(watching)
    0 updates: 0 batches were not finite, the scale grew 0 times and is 2^16
    """
    if isinstance(scaler, GradScaler):
        raise TypeError("this GradScaler has a scale for each gradient and no loss scale: print(scaler.scaling.report()) instead")
    if not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"watch takes a torch.amp.GradScaler, not {type(scaler).__name__}: pass the scaler of the loop, for example trainer.accelerator.scaler")
    known = scaler.__dict__.get("update")
    if isinstance(known, _Method):
        raise ValueError("this scaler is watched already: stop() the first watch, or keep it")
    return Watch(scaler)


class _Method:
    """Method of a watched scaler. A pickled or copied scaler has the class's own method instead."""

    def __init__(self, watch, name, before):
        self.watch, self.name, self.before = watch, name, before

    def __call__(self, *args, **kwargs):
        return getattr(self.watch, f"_{self.name.strip('_')}")(self.before, *args, **kwargs)

    def __reduce__(self):
        # The copy has no attributes yet when this is called, so that its class's method is found.
        return getattr, (self.watch._scaler, self.name)


class Watch:
    """Watch over a loss scale. `updates` counts calls of ``update``, `non_finite` batches that were not finite, and `grew`
    how often the scale grew."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler
        self.updates: int = 0
        self._bad = self._bad_in_a_row = self._grew = 0
        self._warned, self._unscaled = set(), 0
        self._own = {name: scaler.__dict__[name] for name in ("unscale_", "update") if name in scaler.__dict__}
        for name in ("unscale_", "update"):
            scaler.__dict__[name] = _Method(self, name, getattr(scaler, name))

    def stop(self) -> None:
        """Ends the watch, and gives the scaler its methods back."""
        for name in ("unscale_", "update"):
            method = self._scaler.__dict__.get(name)
            if isinstance(method, _Method) and method.watch is self:
                del self._scaler.__dict__[name]
                if name in self._own:
                    self._scaler.__dict__[name] = self._own[name]

    @property
    def non_finite(self) -> int:
        """Returns the number of batches that were not finite."""
        return int(self._bad)

    @property
    def grew(self) -> int:
        """Returns how often the scale grew."""
        return int(self._grew)

    @property
    def scale(self) -> float:
        """Returns the loss scale."""
        return float(self._scaler.get_scale())

    def __str__(self):
        return f"{self.updates} updates: {self._history()} and is {_power(self.scale)}"

    def _history(self):
        batches = "batch was" if self.non_finite == 1 else "batches were"
        times = "time" if self.grew == 1 else "times"
        return f"{self.non_finite} {batches} not finite, the scale grew {self.grew} {times}"

    def _update(self, update, new_scale=None):
        scaler = self._scaler
        if not scaler.is_enabled() or scaler._scale is None:
            return update(new_scale)
        flags = [flag for state in scaler._per_optimizer_states.values() for flag in state["found_inf_per_device"].values()]
        before = scaler._scale.clone()
        result = update(new_scale)
        if new_scale is not None or not flags:
            return result
        bad = torch.stack([flag.to(before.device).reshape(()) for flag in flags]).amax() > 0
        on_host = before.device.type == "cpu"
        self.updates += 1
        # On a GPU these are tensors, so that the host does not wait.
        self._bad = self._bad + (bool(bad) if on_host else bad.long())
        self._bad_in_a_row = (self._bad_in_a_row + 1) * (bool(bad) if on_host else bad.long())
        grew = scaler._scale.reshape(()) > before.reshape(())
        self._grew = self._grew + (bool(grew) if on_host else grew.long())
        if "collapsed" not in self._warned and (on_host or self.updates % READ_INTERVAL == 0) and self.scale < MIN_SCALE:
            self._warn("collapsed", self._collapse())
        return result

    def _collapse(self):
        text = f"the loss scale of GradScaler has fallen to {_power(self.scale)} in {self.updates} steps, because {self._reason()}"
        if int(self._bad_in_a_row) >= ALL_BAD:
            return (
                f"{text}. Weights or inputs are probably not finite: find_non_finite_layer(model, x) names the layer, and a checkpoint from"
                " before has good weights"
            )
        return (
            f"{text}. Look for samples whose loss is infinite or NaN, keep the scale up with scaler.update(new_scale=1.0) when it is below 1, or"
            " use gradscale.torch.attach(model), whose scales such batches do not move"
        )

    def _reason(self):
        """Returns why the scale is small."""
        last = int(self._bad_in_a_row)
        if last >= ALL_BAD:
            return f"the last {last} batches were all not finite"
        if self.non_finite > self.grew:
            batches = "batch was" if self.non_finite == 1 else "batches were"
            return (
                f"{self.non_finite} {batches} not finite and it grew {self.grew} {'time' if self.grew == 1 else 'times'}: it grows only after"
                f" {self._scaler.get_growth_interval()} finite batches in a row"
            )
        return "it was that small at the start"

    def _unscale(self, unscale, optimizer):
        scaler = self._scaler
        result = unscale(optimizer)
        if not scaler.is_enabled() or "flushes" in self._warned:
            return result
        self._unscaled += 1
        if self._unscaled % LOOK_INTERVAL == 1:
            self._look(optimizer)
        return result

    def _look(self, optimizer):
        """Estimates how many gradients flush at this scale.

        Halves at the scale S are multiples of 2^-24 / S. Values that round to ±1 of that step have magnitudes between 1/2
        and 3/2 of it, a range twice as wide as that below, from which values flush. Gradients are at least as dense near
        zero, so half as many are flushed, or more. Gradients of other layers, which are f32, are hardly ever such multiples.
        """
        scale = self.scale
        step = 2.0**-24 / scale
        if step < 2.0**-126:
            return
        smallest = nonzero = 0
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad.detach()
                g = (g.coalesce().values() if g.layout == torch.sparse_coo else g).abs()
                if not g.isfinite().all():
                    return
                # Unscaling multiplies by the reciprocal, which f32 rounds unless the scale is a power of two.
                smallest += int(((g > step * (1 - 1e-6)) & (g < step * (1 + 1e-6))).sum())
                nonzero += int((g != 0).sum())
        flushed = smallest / 2
        if flushed > MAX_FLUSHED * (nonzero + flushed):
            percent = 100 * flushed / (nonzero + flushed)
            self._warn(
                "flushes",
                f"the loss scale {_power(scale)} of GradScaler flushes an estimated {percent:.0f} % of the gradients of weights to zero, because"
                f" {self._reason()}. Use a larger one (init_scale=, or scaler.update(new_scale=…)), which diagnose(model, loss_fn, batch)"
                " recommends, or gradscale.torch.attach(model)",
            )

    def _warn(self, kind, text):
        self._warned.add(kind)
        # The line of the loop is three calls up from `_update`, and four from `_look`.
        warnings.warn(f"gradscale: {text}", LossScaleWarning, stacklevel=4 if kind == "collapsed" else 5)


def _power(scale):
    return f"2^{math.log2(scale):.4g}" if scale > 0 and math.isfinite(scale) else f"{scale}"
