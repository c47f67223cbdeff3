"""Loss scaler for training loops that have the interface of timm's: ``loss_scaler(loss, optimizer, clip_grad=…)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .scaling import GradientScaling

try:
    from timm.utils import dispatch_clip_grad
except ImportError as error:
    raise ImportError("gradscale.torch.timm is for the training loop of timm: pip install timm") from error


class NativeScaler:
    """Replacement of ``timm.utils.NativeScaler``, with a scale for every gradient.

    Use: ``loss_scaler = NativeScaler(scaling)``, with ``scaling = gradscale.torch.attach(model)``. Then the loop needs no
    autocast. A call computes gradients. With `need_update` it also clips them, steps the optimizer unless a gradient is not
    finite, and ends the step of `scaling`. Checkpoints hold the state of `scaling` under the key of timm's scaler.
    """

    state_dict_key = "amp_scaler"

    def __init__(self, scaling: GradientScaling):
        self.scaling = scaling

    def __call__(
        self, loss: torch.Tensor, optimizer: torch.optim.Optimizer, clip_grad: float | None = None, clip_mode: str = "norm",
        parameters: Iterable[torch.nn.Parameter] | None = None, create_graph: bool = False, need_update: bool = True,
    ) -> None:
        loss.backward(create_graph=create_graph)
        if not need_update:
            return
        if clip_grad is not None:
            if parameters is None:
                raise ValueError("clip_grad needs the parameters whose gradients are clipped")
            dispatch_clip_grad(parameters, clip_grad, mode=clip_mode)
        if not any(known is optimizer for known, _ in self.scaling._optimizers):
            self.scaling.guard(optimizer)
        optimizer.step()
        self.scaling.update()

    def state_dict(self) -> dict[str, Any]:
        return self.scaling.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scaling.load_state_dict(state_dict)
