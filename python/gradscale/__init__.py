"""FP16 training with a separate scale for every gradient.

Casts to small formats, statistics of what they lose, and the rules and schedules that choose scales: the code of the
Rust project, with numpy's habits. ``gradscale.torch`` puts it under PyTorch.

>>> import gradscale, numpy as np
>>> gradient = np.float32([1e-9, -3e-8, 2e-10, 0])
>>> gradscale.cast(gradient, "fp16")                # FP16 keeps next to none of it
array([ 0.e+00, -6.e-08,  0.e+00,  0.e+00], dtype=float16)
>>> row = gradscale.observe(gradient)
>>> row.flushed, row.nonzero
(2, 3)
>>> decision = gradscale.Rule("gs").decide(row)     # at most one in a thousand is to flush
>>> decision.exponent_delta
19
>>> halves, seen = gradscale.store(gradient, decision.exponent_delta)   # at the scale 2^19
>>> seen.flushed, seen.subnormal
(0, 0)
"""

from ._arrays import cast, decode, observe, store
from ._gradscale import (
    METHOD_SYNTAX,
    ROW_WORDS,
    Decision,
    LossScale,
    NoDecisionError,
    Outcome,
    Rule,
    Sites,
    Stats,
    baselines,
    propose_fixed,
    replay,
    set_num_threads,
)
from ._gradscale import VERSION as __version__

__all__ = [
    "__version__",
    "METHOD_SYNTAX",
    "ROW_WORDS",
    "Decision",
    "LossScale",
    "NoDecisionError",
    "Outcome",
    "Rule",
    "Sites",
    "Stats",
    "baselines",
    "cast",
    "decode",
    "observe",
    "propose_fixed",
    "replay",
    "set_num_threads",
    "store",
]
