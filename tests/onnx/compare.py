"""Asks onnx whether the models that the example `onnx` wrote are ones, and ONNX Runtime for their answers: those of weights
in f32 to rounding, those of weights in FP16 to FP16's. compare.py DIR"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

# Of the largest value of an answer.
BOUND = 2e-5
# Weights are rounded to 11 bits, and errors of some fifty layers add.
HALF = 2e-2

TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}


def answer(path, folder, name):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {
        one.name: np.fromfile(folder / f"{name}.input{i}.bin", TYPES[one.type]).reshape(one.shape)
        for i, one in enumerate(session.get_inputs())
    }
    return session.run(None, inputs)[0]


def main():
    folder, worst, failed = Path(sys.argv[1]), {}, []
    names = sorted(path.name.removesuffix(".output.bin") for path in folder.glob("*.output.bin"))
    for name in names:
        right = np.fromfile(folder / f"{name}.output.bin", np.float32)
        for ending, bound in (("onnx", BOUND), ("half.onnx", HALF)):
            path = folder / f"{name}.{ending}"
            try:
                found = answer(path, folder, name)
            except Exception as error:  # Whatever it is, the others are looked at too.
                failed.append(f"{path.name}: {error}")
                continue
            off = np.abs(found.ravel() - right).max() / np.abs(right).max()
            worst[ending] = max(worst.get(ending, 0), off)
            if not (found.size == right.size and off <= bound):
                failed.append(f"{path.name}: off by {off:.1e} of the largest value, and {bound:.0e} would do")
    for line in failed:
        print(line)
    off = ", ".join(f"{ending} {value:.1e}" for ending, value in worst.items())
    print(f"{len(names)} networks, onnx {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}: at most {off}")
    sys.exit(1 if failed or not names else 0)


main()
