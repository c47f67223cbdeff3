"""Checks models with onnx, and compares ONNX Runtime's outputs with the engine's.

    compare.py NETWORKS RUNS

NETWORKS has the output of the example `onnx`: models, inputs and this engine's outputs. ONNX Runtime's must agree up to
rounding, with weights in f32 and in FP16. RUNS has models of `gradscale export`, which must run on zeros, and whose
metadata must name their classes."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

# Maximum error relative to the largest value of an output.
BOUND = 2e-5

TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}


def answers(path, given):
    """Returns all outputs of a model for the inputs that `given` creates from number, type and shape."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {one.name: given(i, TYPES[one.type], one.shape) for i, one in enumerate(session.get_inputs())}
    return session.run(None, inputs)


def main():
    networks, runs = map(Path, sys.argv[1:])
    worst, failed = {}, []
    names = sorted(path.name.removesuffix(".half.onnx") for path in networks.glob("*.half.onnx"))
    for name in names:

        def given(i, kind, shape):
            return np.fromfile(networks / f"{name}.input{i}.bin", kind).reshape(shape)

        for ending in ("onnx", "half.onnx"):
            path = networks / f"{name}.{ending}"
            right = np.fromfile(path.with_suffix(".output.bin"), np.float32)
            try:
                found = answers(path, given)[0]
            except Exception as error:  # Whatever it is, the others are looked at too.
                failed.append(f"{path.name}: {error}")
                continue
            off = np.abs(found.ravel() - right).max() / np.abs(right).max()
            worst[ending] = max(worst.get(ending, 0), off)
            if not (found.size == right.size and off <= BOUND):
                failed.append(f"{path.name}: off by {off:.1e} of the largest value, and {BOUND:.0e} would do")
    exported = sorted(runs.glob("*.onnx"))
    for path in exported:
        try:
            found = answers(path, lambda _, kind, shape: np.zeros(shape, kind))
        except Exception as error:
            failed.append(f"{path.name}: {error}")
            continue
        if not all(np.isfinite(one).all() for one in found):
            failed.append(f"{path.name}: an answer is not finite")
        described = {one.key: json.loads(one.value) for one in onnx.load(path).metadata_props}
        if "names" not in described.get("classes", {}):
            failed.append(f"{path.name}: it does not say what it tells apart")
    for line in failed:
        print(line)
    off = ", ".join(f"{ending} {value:.1e}" for ending, value in worst.items())
    versions = f"onnx {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}"
    print(f"{len(names)} networks and {len(exported)} exported trainings, {versions}; at most off by {off}")
    sys.exit(1 if failed or not names or not exported else 0)


main()
