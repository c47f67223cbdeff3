#!/usr/bin/env python3
"""The paper's Table 3 at a small scale, in pairs: SegNetBasic on CamVid at 90 × 120, the paper's baseline, its method
and ours.

usage: scripts/table3.py [--data DIRECTORY --results DIRECTORY [--seeds N] [--steps N] [--methods METHOD ...] [--program FILE]]

With --data, trains the runs that docs/science/table3.csv lacks, and adds them. DIRECTORY of data holds camvid-90x120;
that of results keeps the program's output. Then writes the section of docs/science.md. Without --data it only writes.
"""
import paired
from study import Study

# The divisor of the loss: pixels of twelve images of 360 × 480, as in the paper.
PIXELS = 2073600
# Number of steps of the first study of this comparison, so that both can be compared.
STEPS = 250
# Zhao et al. 2020, Table 3: mIoU of its gradient scaling above its loss scale, in points.
CLAIM = 1.3
# The other methods of these pages, over three seeds: no scale, fixed and dynamic ones, per-tensor scales of FP8 libraries, and
# what the paper says where its authors' code differs.
OTHER_METHODS = ["fp16", "fixed:128", "dynamic", "torch-20th", "dynamic:10", "logmax", "amax:history=16", "amax:history=16,margin=4", "gs:paper-literal", "gs:paper"]
# The paper's loss scale, its method by its authors' code, ours; `chaos` is fp32 from weights that differ by 2^-20.
STUDY = Study(
    "table3", "docs/science.md", "camvid-90x120", ["--pixels", PIXELS, "--width", 16, "--batch", 12], STEPS,
    ["fp32", "zhao", "gs:authors", "gs", "chaos", *OTHER_METHODS],
    [("zhao", "fp32"), ("gs:authors", "fp32"), ("gs", "fp32"), ("chaos", "fp32"), ("zhao", "gs"), ("gs:authors", "zhao"), *((method, "fp32") for method in OTHER_METHODS)],
    [("miou", "mIoU"), ("class_accuracy", "class accuracy"), ("global_accuracy", "global accuracy")],
    OTHER_METHODS,
)
INTRODUCTION = f"""SegNetBasic of 16 channels, 12 images of 90 × 120 a step, the loss divided by {PIXELS} pixels. `zhao` is the paper's loss scale: interval 10, at most 2^15, weight gradients in half. All methods of a seed share weights, order and noise. `chaos` is fp32 from weights that differ by 2^-20: its spread is what any change of rounding does. *Lost at the end*: the largest share of a site's sum of magnitudes that was stored as zero in the last step. *Detectable*: a difference of this size is seen in four of five cases. A verdict of *equal* is a test of equality within {100 * paired.LOSS_MARGIN} % of the loss or {paired.SCORE_MARGIN:.0f} point, fixed beforehand; *no test* could not have detected that margin."""


def claim_of(rows):
    """The verdict on the paper's claim, and its pairs; `not tried` without."""
    found = STUDY.pairs_of(rows, "gs:authors", "zhao", "miou")
    if found is None:
        return "not tried", None
    pairs, _ = found
    if pairs.p < paired.LEVEL:
        return ("reproduced" if pairs.mean > 0 else "refuted here"), pairs
    return ("no test" if pairs.detectable > CLAIM else "refuted here"), pairs


def answer(rows):
    """States whether the results agree with the paper's claim."""
    verdict, pairs = claim_of(rows)
    if pairs is None:
        return "The paper's claim has not been tested: fewer than two pairs are on record."
    text = f"The paper has its gradient scaling {CLAIM} points of mIoU above its loss scale after 16 000 steps at 360 × 480. Here the difference is {pairs.text(2)}, and {pairs.detectable:.2f} points are detectable. "
    return text + {
        "reproduced": "So the sign of the claim is *reproduced*.",
        "no test": "That is *no test* of the claim.",
        "refuted here": "So the claim is *refuted here*, at this size and for so few steps.",
    }[verdict]


def section(rows):
    """The part of docs/science.md."""
    return STUDY.section(rows, INTRODUCTION, answer(rows))


if __name__ == "__main__":
    STUDY.main(__doc__, section)
