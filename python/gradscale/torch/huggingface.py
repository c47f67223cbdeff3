"""Callback for ``transformers.Trainer``: guards its optimizer, ends its steps, and saves and loads with checkpoints."""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any

import torch

from . import ranks
from .scaling import GradientScaling

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError("gradscale.torch.huggingface is for transformers.Trainer: pip install transformers accelerate") from error


#: Name of the callback in checkpoints before it was renamed: the Trainer stores states under the name of the class.
_FORMER_NAME = "Callback"


class GradientScalingCallback(TrainerCallback, ExportableState):
    """Callback of gradient scaling for the ``Trainer`` of Hugging Face.

    Use: ``Trainer(…, callbacks=[GradientScalingCallback(scaling)])``, with ``scaling = gradscale.torch.attach(model)``.

    Checkpoints of the Trainer hold the state of `scaling`, and a training that is resumed from one goes on with the same bits.
    With several ranks they hold the state of each, because ranks see other batches and so decide other exponents. A training that
    is resumed with another number of ranks begins with the states that are there, in their order.
    """

    def __init__(self, scaling: GradientScaling | None = None) -> None:
        self.scaling: GradientScaling | None = scaling
        #: The epoch of `scaling` at which the states of all ranks were gathered, and these states.
        self._gathered = None, []

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        if not isinstance(self.scaling, GradientScaling):
            raise TypeError(
                "GradientScalingCallback needs the scaling that attach() returned. Do not set restore_callback_states_from_checkpoint, because it"
                " replaces the callback by a copy without a scaling; gradscale loads the state without it"
            )
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is not None and not any(known is inner for known, _ in self.scaling._optimizers):
            self.scaling.guard(inner)
        kept = state.stateful_callbacks or {}
        saved = kept.get(type(self).__name__, kept.get(_FORMER_NAME))
        if saved is not None and state.global_step:
            attributes = (saved[0] if isinstance(saved, list) else saved)["attributes"]
            texts = attributes.get("ranks") or [attributes["scaling"]]
            self.scaling.load_state_dict(_decoded(texts[ranks.rank() % len(texts)]))

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.scaling.update()

    # The Trainer asks the first rank alone for its state, so the others send theirs wherever a checkpoint may follow.

    def on_step_end(self, args, state, control, **kwargs):
        if control.should_save:
            self._gather()

    def on_epoch_end(self, args, state, control, **kwargs):
        if control.should_save:
            self._gather()

    def on_evaluate(self, args, state, control, **kwargs):
        # With save_strategy="best" the Trainer decides after this call whether it saves.
        if control.should_save or args.save_strategy == "best":
            self._gather()

    def _gather(self):
        if ranks.several() and self._gathered[0] != self.scaling._epoch:
            self._gathered = self.scaling._epoch, ranks.all_gather(_encoded(self.scaling.state_dict()))

    def state(self) -> dict[str, Any]:
        """Returns the state that the Trainer writes with a checkpoint, as JSON."""
        attributes = {"scaling": _encoded(self.scaling.state_dict())}
        epoch, texts = self._gathered
        if texts and epoch == self.scaling._epoch:
            attributes["ranks"] = texts
        elif ranks.several() and self.scaling._epoch:
            warnings.warn(
                "gradscale: this checkpoint contains the scales of the first rank only, because a callback after gradscale's"
                " requested it: pass GradientScalingCallback last",
                stacklevel=2,
            )
        return {"args": {}, "attributes": attributes}


def _encoded(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _decoded(text):
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
