#!/usr/bin/env python3
"""Master weights: level O2 (f32 weights with half copies) against O3 (only half weights), in pairs, on ResNet-18.

usage: scripts/master_weights.py [--data DIRECTORY --results DIRECTORY [--seeds N] [--steps N] [--methods METHOD ...] [--program FILE]]

As scripts/table3.py; DIRECTORY of data holds cifar10-10k.
"""
from study import Study

STEPS = 200
O2, O3 = "gs:amp=O2", "gs:amp=O3"
STUDY = Study(
    "master_weights", "docs/science.md", "cifar10-10k", ["--network", "resnet-18", "--width", 8], STEPS, ["fp32", O2, O3],
    [(O2, "fp32"), (O3, "fp32"), (O3, O2)], [("top_1", "top-1"), ("top_5", "top-5")],
)
INTRODUCTION = """ResNet-18 of 8 channels on CIFAR-10's first 10 000 images, 64 a step, SGD with momentum at its default rate. O2 keeps weights in f32 and computes with half copies. O3 has half weights alone, so an update smaller than half a unit of a weight's last place is lost. Gradients have the same scales in both."""


def verdict_of(rows):
    """Returns whether half weights have a higher training loss, as Micikevicius et al. report."""
    found = STUDY.pairs_of(rows, O3, O2, "loss_last_half")
    if found is None:
        return "not tried"
    pairs, mean = found
    return {"differs": "reproduced" if pairs.mean > 0 else "refuted here", "equal": "refuted here", "no test": "no test",
            "not told apart": "consistent"}[pairs.verdict(STUDY.measures[0][3](mean))]


def section(rows):
    """The part of docs/science.md."""
    return STUDY.section(rows, INTRODUCTION, None)


if __name__ == "__main__":
    STUDY.main(__doc__, section)
