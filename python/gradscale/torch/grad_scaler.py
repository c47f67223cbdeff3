"""The calls of ``torch.amp.GradScaler``, with a scale for each gradient instead of one for all."""

from __future__ import annotations

import math
from collections import abc, defaultdict
from typing import Any, overload

import torch
from torch.amp.grad_scaler import _refresh_per_optimizer_state

from .scaling import GradientScaling


#: The largest half is 2^16 less a little. Gradients of weights, which are halves there, may be larger than those of activations.
HALF_EXPONENT, HEADROOM = 16, 3
#: Beyond that, torch's GradScaler halves its loss scale for a while before it steps.
MAX_LOSS_EXPONENT = 24


class GradScaler(torch.amp.GradScaler):
    """A drop-in for ``torch.amp.GradScaler``: change the import, and nothing else.

    The loss is scaled by 1, so that ``get_scale()`` is 1 and gradients of weights are unscaled. ``unscale_`` only
    checks whether they are finite. The parameters of a loss scale's growth are accepted, stored and saved, and have no
    effect. ``scaling`` is the underlying :class:`GradientScaling`, with its report and its outcome; `model` gives names
    to its sites.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True, *, method: str = "gs", model: torch.nn.Module | None = None,
        deferred: bool | None = None, max_consecutive_skips: int = 50,
    ) -> None:
        super().__init__(device, 1.0, growth_factor, backoff_factor, growth_interval, enabled)
        self._loss_scale = float(init_scale)
        self.scaling: GradientScaling = GradientScaling(method, deferred=deferred, max_consecutive_skips=max_consecutive_skips)
        if model is not None:
            self.scaling._name_parameters(model)

    @overload
    def scale(self, outputs: torch.Tensor) -> torch.Tensor: ...
    @overload
    def scale(self, outputs: list[torch.Tensor]) -> list[torch.Tensor]: ...
    @overload
    def scale(self, outputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]: ...
    @overload
    def scale(self, outputs: abc.Iterable[torch.Tensor]) -> abc.Iterable[torch.Tensor]: ...
    def scale(self, outputs):
        """Returns the outputs unchanged; their gradients are scaled from here on, each as it needs."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, torch.Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            return self.scaling.scale(outputs)
        if isinstance(outputs, abc.Iterable):
            each = map(self.scale, outputs)
            return type(outputs)(each) if isinstance(outputs, (list, tuple)) else each
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Ends a step: the exponents of the next step are decided from its statistics. `new_scale` has no effect."""
        if not self._enabled:
            return
        self._check_scale_growth_tracker("update")
        found = [flag for state in self._per_optimizer_states.values() for flag in state["found_inf_per_device"].values()]
        if not found:
            raise AssertionError("No inf checks were recorded prior to update.")
        first = found[0].reshape(())
        for flag in found[1:]:
            first = torch.maximum(first, flag.to(first.device).reshape(()))
        self.scaling._found = first
        self.scaling.update()
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def state_dict(self) -> dict[str, Any]:
        """Returns a state with the keys of ``torch.amp.GradScaler``, and ``"gradscale"``. ``"scale"`` is a loss scale
        with which torch's can go on."""
        state = super().state_dict()
        if not self._enabled:
            return state
        return {**state, "scale": self._suited_loss_scale(), "gradscale": self.scaling.state_dict()}

    def _suited_loss_scale(self):
        """Returns the largest loss scale at which the gradients of the last step stay below the largest half, with some
        headroom; the given one, where none is known."""
        largest = [site["log2_amax"] for site in self.scaling.report().sites]
        largest = [x for x in largest if x is not None and math.isfinite(x)]
        if not largest:
            return self._loss_scale
        return 2.0 ** min(max(HALF_EXPONENT - HEADROOM - math.ceil(max(largest)), 0), MAX_LOSS_EXPONENT)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state that this class or ``torch.amp.GradScaler`` has saved. The scale of the latter is ignored."""
        if not self._enabled:
            return
        super().load_state_dict({**state_dict, "scale": 1.0})
        self._loss_scale = float(state_dict["scale"])
        if "gradscale" in state_dict:
            self.scaling.load_state_dict(state_dict["gradscale"])
