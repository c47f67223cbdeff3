"""For ``transformers.Trainer``: a callback that guards its optimizer and ends its steps."""

from __future__ import annotations

from transformers import TrainerCallback


class Callback(TrainerCallback):
    """``Trainer(…, callbacks=[Callback(gs)])``, with ``gs = gradscale.torch.attach(model)``."""

    def __init__(self, scaling):
        self.scaling = scaling

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is not None and not any(known is inner for known, _ in self.scaling._optimizers):
            self.scaling.guard(inner)

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.scaling.update()
