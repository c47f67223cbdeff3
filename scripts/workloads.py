#!/usr/bin/env python3
"""All workloads of the papers by several methods, over three seeds: docs/workloads.md.

usage: scripts/workloads.py [--data DIRECTORY --results DIRECTORY [--only NETWORK ...] [--program FILE]]

With --data, trains the runs that docs/science/workloads lacks, and adds them; DIRECTORY of data holds the data sets by the
names that `WORKLOADS` gives, that of results keeps the program's output. Then writes the page. Without --data it only writes.
"""
import argparse
import pathlib

import paired
from study import Study, spread

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = 3
RECORDS = "workloads"
MICIKEVICIUS = "Micikevicius et al. 2018"
ZHAO = "Zhao et al. 2020"


class Workload(Study):
    """Network with its data, and the claims of the papers about it."""

    def __init__(self, network, family, data, options, scores, differs, figures, fixed="fixed:8"):
        self.network, self.family, self.differs, self.figures = network, family, differs, figures
        words = options.split()
        at = words.index("--iters")
        # Common practice, the paper's own loss scale, FP8's recipe, and a perturbed training that measures chaos.
        methods = ["fp32", "fp16", fixed, "dynamic", "torch-20th", "zhao", "amax:history=16", "gs", "chaos"]
        super().__init__(f"{RECORDS}/{network}", "docs/workloads.md", data, ["--network", network, *words[:at], *words[at + 2 :]], int(words[at + 1]), methods,
                         [(method, "fp32") for method in methods[1:]], scores, seeds=SEEDS)

    def part(self):
        """The network's section of the page."""
        lines = [f"{who}: {what} ({score})." for score, who, what in self.figures] + [f"What differs: {self.differs}."]
        options = " ".join(map(str, self.options))
        before = f"`gradscale compare --data DATA/{self.data} {options}`, one thread."
        return f"### {self.network}\n\n{self.section(self.shown_rows(), before, chr(10).join(lines))}\n"


TOP = [("top_1", "top-1"), ("top_5", "top-5")]
BOXES = [("map", "mAP"), ("map_area", "mAP (area)")]
PIXELS = [("miou", "mIoU"), ("class_accuracy", "class accuracy"), ("global_accuracy", "global accuracy")]
TOKENS = [("bits_saved", "bits saved"), ("perplexity", "perplexity", False)]
CLASSIFIED = "CIFAR-10's first 10 000 images at 32 × 32 for ILSVRC's at 224 × 224, narrower layers, few steps"
NO_SCALE = "{}; no scale was needed"
DETECTED = "blood cells (292 images) for VOC 2007 and 2012 (16 551), images of {0} × {0}, narrow layers with batch norm that begin untrained for a trained VGG-16, AdamW for SGD, 200 steps"
PROPOSED = DETECTED.format(128).replace("VOC 2007 and 2012 (16 551)", "VOC 2007 (5011)") + ", RoIAlign for RoI max-pooling, SSD's augmentation for mirroring alone"
WORKLOADS = [
    Workload("alexnet", "classification", "cifar10-10k", "--width 16 --iters 150 --optimizer adam", TOP, CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 56.77, mixed precision 56.93"))]),
    Workload("vgg-16", "classification", "cifar10-10k", "--width 8 --iters 150 --optimizer adam", TOP, CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 65.40, mixed precision 65.43"))]),
    Workload("googlenet", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 150", TOP, CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 68.33, mixed precision 68.43"))]),
    Workload("inception-v2", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 150", TOP, CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 70.03, mixed precision 70.02"))]),
    Workload("inception-v3", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 150", TOP, CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 73.85, mixed precision 74.13"))]),
    Workload("resnet-18", "classification", "cifar10-10k", "--width 8 --iters 150", TOP, CLASSIFIED,
             [("top-1 %", ZHAO, "fp32 70.76, fp16 71.24, fixed 71.39, dynamic 71.39, gradient scaling 71.44")]),
    Workload("resnet-50", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 150", TOP, CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 75.92, mixed precision 76.04")),
              ("top-1 %", ZHAO, "fp32 76.49, fp16 76.07, fixed 76.03, dynamic 76.12, gradient scaling 76.22")]),
    Workload("ssd-300", "detection", "bccd", "--width 8 --iters 200 --batch 8 --optimizer adamw --lr 0.002", BOXES, DETECTED.format(128),
             [("mAP %", MICIKEVICIUS, "fp32 76.9, fp16 diverges, with a loss scale of 8 77.1"),
              ("mAP %", ZHAO, "batch 8: fp16 diverged, fixed 76.23 (best of 7), dynamic 69.26, gradient scaling 76.35")]),
    Workload("ssd-512", "detection", "bccd", "--width 8 --iters 200 --batch 8 --optimizer adamw --lr 0.002", BOXES, DETECTED.format(192),
             [("mAP %", ZHAO, "batch 8: fp16 diverged, fixed 79.29 (best of 8), dynamic 75.33, gradient scaling 79.24; batch 32: "
                              "fp16 diverged, fixed 80.01, dynamic 80.17, gradient scaling 80.31")]),
    Workload("faster-rcnn", "detection", "bccd", "--width 8 --iters 200 --batch 4 --optimizer adamw --lr 0.002", BOXES, PROPOSED,
             [("mAP %", MICIKEVICIUS, "fp32 69.1, fp16 without a loss scale 68.6, with one 69.7")]),
    Workload("segnet-basic", "segmentation", "camvid-90x120", "--width 16 --batch 12 --iters 100", PIXELS,
             "images of 90 × 120 for 360 × 480, 16 channels for 64, 100 steps for 16 000; docs/science.md has more",
             [("mIoU %", ZHAO, "fp32 51.1, fp16 diverged, dynamic 48.3, gradient scaling 49.6")]),
    Workload("segnet", "segmentation", "camvid-90x120", "--width 8 --batch 12 --iters 100", PIXELS,
             "neither paper trained it; images of 90 × 120, 8 channels for 64", []),
    Workload("deep-speech-2", "speech", "fsdd", "--iters 150", [("cer", "character errors")],
             "ten spoken digits for thousands of hours, two recurrent layers of 64 units for five of 800",
             [("character errors %", MICIKEVICIUS, "English: fp32 2.20, mixed precision 1.99; Mandarin: 15.82 and 15.01")]),
    Workload("seq2seq-1", "translation", "text/multi30k-en-de", "--iters 200 --batch 64 --optimizer adamw --lr 0.004", [("bleu", "BLEU", False), ("piece_perplexity", "token perplexity", False)],
             "29 000 captions for WMT15, English to German for English to French, one layer of 128 units for three or five of 1024",
             [("perplexity", MICIKEVICIUS, "with a loss scale as fp32, without a slight degradation")], "fixed:128"),
    Workload("biglstm", "language", "text/tinyshakespeare", "--iters 125 --optimizer adamw --lr 0.003", TOKENS,
             "characters of Shakespeare for a billion words, so that no classes are drawn; 512 → 64 units for 8192 → 1024",
             [("perplexity", MICIKEVICIUS, "fp16 diverges after 300 000 steps, with a loss scale of 128 it is as fp32")], "fixed:128"),
    Workload("decoder", "language", "text/tinyshakespeare", "--iters 125 --optimizer adamw --lr 0.003", TOKENS,
             "neither paper has it: the second calls it future work", [], "fixed:128"),
    Workload("dcgan", "generation", "fashion-mnist", "--iters 250", [("nearness", "nearness"), ("variety", "variety"), ("frechet_distance", "Fréchet distance", False)],
             "garments of 28 × 28 for faces of 64 × 64; the paper compares by eye",
             [("images", MICIKEVICIUS, "fp32 and mixed precision look alike; no scale was needed")]),
]


def found(network):
    """The workload of a network."""
    return next(one for one in WORKLOADS if one.network == network)


class Claim:
    """Claim of a paper about two methods: `method` is `expects` (equal, above, diverges) relative to `baseline`, by
    `size` in units of the score. A `size` that could not be detected is no test of the claim."""

    def __init__(self, text, network, key, method, baseline, expects, size):
        self.text, self.network, self.key, self.method, self.baseline = text, network, key, method, baseline
        self.expects, self.size = expects, size

    def verdict(self, pairs, baseline):
        """Verdict in words; `baseline` is its mean score."""
        seen = f"only {pairs.detectable:.1f} or more would have been seen"
        # A network that diverges loses at least half of what f32 has here; equality is tested within the margin.
        claim = {"diverges": baseline / 2, "equal": paired.SCORE_MARGIN, "above": self.size}[self.expects]
        told = pairs.verdict(paired.SCORE_MARGIN, claim)
        if told == "no test":
            return f"no test: {seen}, for a {'margin' if self.expects == 'equal' else 'claim'} of {claim:.1f}"
        if self.expects == "diverges":
            return "reproduced" if told == "differs" and pairs.mean < -claim else "not at this size: it does not diverge"
        if self.expects == "equal":
            return {"differs": "differs by more than chance", "equal": f"reproduced: equal within {paired.SCORE_MARGIN:.0f} point",
                    "not told apart": "consistent: not told apart"}[told]
        if told == "differs":
            return "reproduced" if pairs.mean > 0 else "refuted here"
        return "refuted here: " + ("equal within 1 point" if told == "equal" else f"not told apart, and {self.size:.1f} would have been seen")

    def row(self):
        """Cells: the claim, the network, losses and score as paired differences, the verdict."""
        workload = found(self.network)
        rows = workload.shown_rows()
        ended, seeds = len(workload.stops(rows, self.method)), sum(row["method"] == self.method for row in rows)
        if ended and 2 * ended > seeds:
            verdict = "reproduced" if self.expects == "diverges" else "refuted here: it diverges"
            return self.text, self.network, f"{self.method}: {ended} of {seeds} runs stopped early", verdict
        both = workload.pairs_of(rows, self.method, self.baseline, self.key)
        if both is None:
            return self.text, self.network, "fewer than two pairs", "not tried"
        pairs, baseline = both
        parts = []
        loss = workload.pairs_of(rows, self.method, self.baseline, "loss_last_half")
        if loss:
            parts.append(f"training loss {loss[0].text(4)}: {loss[0].verdict(paired.LOSS_MARGIN * abs(loss[1]))}")
        parts.append(f"score {pairs.text(2)}")
        return self.text, self.network, f"{self.method} − {self.baseline}: " + "; ".join(parts), self.verdict(pairs, baseline)


CLAIMS = [
    Claim(f"SSD diverges in FP16: 76.9 % in f32 ({MICIKEVICIUS})", "ssd-300", "map", "fp16", "fp32", "diverges", 76.9),
    Claim(f"A loss scale of 8 saves it: 77.1 % ({MICIKEVICIUS})", "ssd-300", "map", "fixed:8", "fp32", "equal", 0.2),
    Claim(f"Gradient scaling is above a dynamic loss scale for SSD-300, batch 8: 76.35 to 69.26 % ({ZHAO})", "ssd-300", "map", "gs", "zhao", "above", 7.09),
    Claim(f"The same for SSD-512, batch 8: 79.24 to 75.33 % ({ZHAO})", "ssd-512", "map", "gs", "zhao", "above", 3.91),
    Claim(f"Faster R-CNN needs no loss scale: 69.1 % in f32, 68.6 % in FP16 ({MICIKEVICIUS})", "faster-rcnn", "map", "fp16", "fp32", "equal", 0.5),
    Claim(f"DeepSpeech 2 in FP16 is on par: 2.20 and 1.99 % ({MICIKEVICIUS})", "deep-speech-2", "cer", "fp16", "fp32", "equal", 0.21),
    Claim(f"bigLSTM needs a loss scale of 128: FP16 diverges after 300 000 steps ({MICIKEVICIUS})", "biglstm", "bits_saved", "fp16", "fp32", "diverges", 50.0),
    Claim(f"Translation degrades slightly without a loss scale ({MICIKEVICIUS})", "seq2seq-1", "bleu", "fixed:128", "fp16", "above", 0.5),
    *(Claim(f"{network} needs no loss scale: {theirs} ({MICIKEVICIUS})", network, "top_1", "fp16", "fp32", "equal", size)
      for network, theirs, size in [("alexnet", "56.77 and 56.93 %", 0.16), ("vgg-16", "65.40 and 65.43 %", 0.03), ("googlenet", "68.33 and 68.43 %", 0.1),
                                    ("inception-v2", "70.03 and 70.02 %", 0.01), ("inception-v3", "73.85 and 74.13 %", 0.28), ("resnet-50", "75.92 and 76.04 %", 0.12)]),
    *(Claim(f"ResNet-18: all within 0.7 points, {method} ({ZHAO})", "resnet-18", "top_1", method, "fp32", "equal", 0.7)
      for method in ("fp16", "fixed:8", "dynamic", "gs")),
    Claim(f"DCGAN needs no loss scale; compared by eye ({MICIKEVICIUS})", "dcgan", "nearness", "fp16", "fp32", "equal", 1.0),
]


def claims():
    """Observations of the papers, compared with those here."""
    rows = [claim.row() for claim in CLAIMS]
    fp16 = [row for row in found("ssd-300").shown_rows() if row["method"] == "fp16" and row["flushed_last"]]
    numbers = lambda key: spread(float(row[key]) for row in fp16)
    # Of all gradients, as the paper counts.
    lost = spread(float(row["flushed_last"]) * (100 - float(row["zero_last"])) / 100 for row in fp16)
    rows.insert(2, (f"Of SSD's activation gradients FP16 makes 31 % zero; 66.8 % are zero in f32 ({MICIKEVICIUS})", "ssd-300",
                    f"{lost} %; {numbers('zero_last')} % are zero" if fp16 else "–", "at the end of this training, at its cast sites" if fp16 else "not tried"))
    lines = ["## What the papers observed", "", STATISTICS, "", "| claim | here, with | paired differences | verdict |", "|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


STATISTICS = (f"Methods share weights, order and noise of each seed. So the numbers are means of paired differences with their 95 % intervals. *Equal* is a "
              f"test of equality (TOST) within {100 * paired.LOSS_MARGIN} % of a loss or {paired.SCORE_MARGIN:.0f} point of a score, fixed beforehand. *No test* is a claim smaller "
              "than what these seeds could have shown in four of five cases.")


def render():
    """docs/workloads.md, all of it."""
    text = """# All workloads of the papers

Written by `scripts/workloads.py` from [science/workloads](science/workloads). Networks of both papers, each trained by several methods from the same weights, order and noise, over three seeds; mean ± standard deviation. They are narrow and trained for a minute or less on one core: levels do not compare with the papers', what becomes of a method does. *Flushed at worst*: the largest share of a site's gradients that were not zero and that FP16 made zero, over all sites and steps. *Lost at the end*: the largest share of a site's sum of magnitudes that was stored as zero in the last step. `dynamic` never grows in so few steps: it is `fixed:65536` until something overflows. `torch-20th` is the same with an interval of a twentieth of the steps. `zhao` is the loss scale of Zhao et al. 2020: interval 10, at most 2^15, weight gradients in half. `amax:history=16` are the per-tensor scales of FP8 libraries, without their saturation: the largest magnitude of the last 16 steps lies at the top of FP16's range, so a larger one overflows and its batch is skipped. `chaos` is fp32 from weights that differ by 2^-20: its spread is what any change of rounding does. A run *stopped* if the program gave it up, after 100 skips in a row. Verdicts are of paired differences, as at the [end](#what-the-papers-observed).
"""
    family = None
    for workload in WORKLOADS:
        if workload.family != family:
            family = workload.family
            text += f"\n## {family.capitalize()}\n"
        text += "\n" + workload.part()
    return text + "\n" + claims()


def arguments(description):
    """Reads the arguments of a script that trains workloads."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/gradscale")
    asked = parser.parse_args()
    if asked.data and asked.results is None:
        parser.error("--results says where the program writes")
    return asked


def main():
    asked = arguments(__doc__)
    if asked.data:
        for workload in WORKLOADS:
            if not asked.only or workload.network in asked.only:
                workload.train_missing(asked.data, asked.results, asked.program.resolve(), workload.methods, SEEDS, workload.steps)
    (ROOT / "docs/workloads.md").write_text(render())


if __name__ == "__main__":
    main()
