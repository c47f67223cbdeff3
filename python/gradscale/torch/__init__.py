"""gradscale for PyTorch: FP16 training with a separate scale for every gradient."""

from .attach import attach
from .boundaries import half_backward
from .diagnosis import Diagnosis, diagnose
from .grad_scaler import GradScaler
from .report import Report, find_non_finite_layer
from .scaled import ScaledTensor
from .scaling import GradientScaling
from .steps import TooManySkipsError
from .watching import LossScaleWarning, Watch, watch
from .windows import ScaleWindow, Window, measure_window

__all__ = [
    "Diagnosis", "GradScaler", "GradientScaling", "LossScaleWarning", "Report", "ScaleWindow", "ScaledTensor", "TooManySkipsError", "Watch",
    "Window", "attach", "diagnose", "find_non_finite_layer", "half_backward", "measure_window", "watch",
]
