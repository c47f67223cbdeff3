"""For ``transformers.Trainer``: a callback that guards its optimizer, ends its steps, and saves and loads with checkpoints."""

from __future__ import annotations

import base64
import io

import torch

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError("gradscale.torch.huggingface is for transformers.Trainer: pip install transformers accelerate") from error


class Callback(TrainerCallback, ExportableState):
    """``Trainer(…, callbacks=[Callback(scaling)])``, with ``scaling = gradscale.torch.attach(model)``.

    Checkpoints of the Trainer hold the state of `scaling`, and a training that is resumed from one goes on with the same bits.
    Of several ranks, that of the first is kept.
    """

    def __init__(self, scaling):
        self.scaling = scaling

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is not None and not any(known is inner for known, _ in self.scaling._optimizers):
            self.scaling.guard(inner)
        saved = (state.stateful_callbacks or {}).get(type(self).__name__)
        if saved is not None and state.global_step:
            text = (saved[0] if isinstance(saved, list) else saved)["attributes"]["scaling"]
            self.scaling.load_state_dict(torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True))

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.scaling.update()

    def state(self):
        """What the Trainer writes with a checkpoint, as JSON."""
        buffer = io.BytesIO()
        torch.save(self.scaling.state_dict(), buffer)
        return {"args": {}, "attributes": {"scaling": base64.b64encode(buffer.getvalue()).decode()}}
