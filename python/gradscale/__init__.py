"""FP16 training with a scale of its own for every gradient.

Casts to small formats, statistics of what they lose, and the rules and schedules that choose scales: the code of the
Rust project, with numpy's habits. ``gradscale.torch`` puts it under PyTorch.

>>> import gradscale as gs, numpy as np
>>> gradient = np.float32([1e-9, -3e-8, 2e-10, 0])
>>> gs.cast(gradient, "fp16")                       # FP16 keeps next to none of it
array([ 0.e+00, -6.e-08,  0.e+00,  0.e+00], dtype=float16)
>>> row = gs.Stats.of(gradient)
>>> row.flushed, row.nonzero
(2, 3)
"""

from ._arrays import cast, decode, observe, store
from ._gradscale import ROW_WORDS, Outcome, Sites, Stats, set_num_threads

__all__ = ["ROW_WORDS", "Outcome", "Sites", "Stats", "cast", "decode", "observe", "set_num_threads", "store"]

Stats.of = staticmethod(observe)
