"""gradscale for PyTorch: FP16 training with a separate scale for every gradient."""

from .attach import attach
from .boundaries import hand_halves
from .grad_scaler import GradScaler
from .report import Report, first_not_finite
from .scaled import ScaledTensor
from .scaling import GradientScaling
from .steps import SkippedTooOften
from .windows import ScaleWindow, Window, window

__all__ = [
    "GradScaler", "GradientScaling", "Report", "ScaleWindow", "ScaledTensor", "SkippedTooOften", "Window", "attach", "first_not_finite",
    "hand_halves", "window",
]
