#!/usr/bin/env python3
"""All workloads of the papers by several methods, over three seeds: docs/workloads.md.

usage: scripts/workloads.py --data DIRECTORY --results DIRECTORY [--only NETWORK ...] [--page]

DIRECTORY of data holds the data sets by the names that `WORKLOADS` gives. Each comparison is kept in a directory of
results, and existing ones are not run again. --page only writes the page from existing results, and reports missing
ones.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess

import paired

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = [0, 1, 2]
MICIKEVICIUS = "Micikevicius et al. 2018"
ZHAO = "Zhao et al. 2020"


class Workload:
    """Network with its data, and the claims of the papers about it."""

    def __init__(self, network, family, data, options, differs, figures, fixed="fixed:8"):
        self.network, self.family, self.data, self.options = network, family, data, options.split()
        self.differs, self.figures = differs, figures
        # Common practice, the paper's own loss scale, FP8's recipe, and a perturbed training that measures chaos.
        self.methods = ["fp32", "fp16", fixed, "dynamic", "torch-20th", "zhao", "amax:history=16", "gs", "chaos"]


CLASSIFIED = "CIFAR-10's first 10 000 images at 32 × 32 for ILSVRC's at 224 × 224, narrower layers, few steps"
NO_SCALE = "{}; no scale was needed"
DETECTED = "blood cells (292 images) for VOC 2007 and 2012 (16 551), images of {0} × {0}, narrow layers with batch norm that begin untrained for a trained VGG-16, AdamW for SGD, 400 steps"
PROPOSED = DETECTED.format(128).replace("VOC 2007 and 2012 (16 551)", "VOC 2007 (5011)") + ", RoIAlign for RoI max-pooling, SSD's augmentation for mirroring alone"
WORKLOADS = [
    Workload("alexnet", "classification", "cifar10-10k", "--width 16 --iters 300 --optimizer adam", CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 56.77, mixed precision 56.93"))]),
    Workload("vgg-16", "classification", "cifar10-10k", "--width 8 --iters 300 --optimizer adam", CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 65.40, mixed precision 65.43"))]),
    Workload("googlenet", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 300", CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 68.33, mixed precision 68.43"))]),
    Workload("inception-v2", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 300", CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 70.03, mixed precision 70.02"))]),
    Workload("inception-v3", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 300", CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 73.85, mixed precision 74.13"))]),
    Workload("resnet-18", "classification", "cifar10-10k", "--width 8 --iters 300", CLASSIFIED,
             [("top-1 %", ZHAO, "fp32 70.76, fp16 71.24, fixed 71.39, dynamic 71.39, gradient scaling 71.44")]),
    Workload("resnet-50", "classification", "cifar10-10k", "--width 8 --batch 32 --iters 300", CLASSIFIED,
             [("top-1 %", MICIKEVICIUS, NO_SCALE.format("fp32 75.92, mixed precision 76.04")),
              ("top-1 %", ZHAO, "fp32 76.49, fp16 76.07, fixed 76.03, dynamic 76.12, gradient scaling 76.22")]),
    Workload("ssd-300", "detection", "bccd", "--width 8 --iters 400 --batch 8 --optimizer adamw --lr 0.002", DETECTED.format(128),
             [("mAP %", MICIKEVICIUS, "fp32 76.9, fp16 diverges, with a loss scale of 8 77.1"),
              ("mAP %", ZHAO, "batch 8: fp16 diverged, fixed 76.23 (best of 7), dynamic 69.26, gradient scaling 76.35")]),
    Workload("ssd-512", "detection", "bccd", "--width 8 --iters 400 --batch 8 --optimizer adamw --lr 0.002", DETECTED.format(192),
             [("mAP %", ZHAO, "batch 8: fp16 diverged, fixed 79.29 (best of 8), dynamic 75.33, gradient scaling 79.24; batch 32: "
                              "fp16 diverged, fixed 80.01, dynamic 80.17, gradient scaling 80.31")]),
    Workload("faster-rcnn", "detection", "bccd", "--width 8 --iters 400 --batch 4 --optimizer adamw --lr 0.002", PROPOSED,
             [("mAP %", MICIKEVICIUS, "fp32 69.1, fp16 without a loss scale 68.6, with one 69.7")]),
    Workload("segnet-basic", "segmentation", "camvid-90x120", "--width 16 --batch 12 --iters 200",
             "images of 90 × 120 for 360 × 480, 16 channels for 64, 200 steps for 16 000; docs/science.md has more",
             [("mIoU %", ZHAO, "fp32 51.1, fp16 diverged, dynamic 48.3, gradient scaling 49.6")]),
    Workload("segnet", "segmentation", "camvid-90x120", "--width 8 --batch 12 --iters 200",
             "neither paper trained it; images of 90 × 120, 8 channels for 64", []),
    Workload("deep-speech-2", "speech", "fsdd", "--iters 300",
             "ten spoken digits for thousands of hours, two recurrent layers of 64 units for five of 800",
             [("character errors %", MICIKEVICIUS, "English: fp32 2.20, mixed precision 1.99; Mandarin: 15.82 and 15.01")]),
    Workload("seq2seq-1", "translation", "text/multi30k-en-de", "--iters 400 --batch 64 --optimizer adamw --lr 0.004",
             "29 000 captions for WMT15, English to German for English to French, one layer of 128 units for three or five of 1024",
             [("perplexity", MICIKEVICIUS, "with a loss scale as fp32, without a slight degradation")], "fixed:128"),
    Workload("biglstm", "language", "text/tinyshakespeare", "--iters 250 --optimizer adamw --lr 0.003",
             "characters of Shakespeare for a billion words, so that no classes are drawn; 512 → 64 units for 8192 → 1024",
             [("perplexity", MICIKEVICIUS, "fp16 diverges after 300 000 steps, with a loss scale of 128 it is as fp32")], "fixed:128"),
    Workload("decoder", "language", "text/tinyshakespeare", "--iters 250 --optimizer adamw --lr 0.003",
             "neither paper has it: the second calls it future work", [], "fixed:128"),
    Workload("dcgan", "generation", "fashion-mnist", "--iters 500",
             "garments of 28 × 28 for faces of 64 × 64; the paper compares by eye",
             [("images", MICIKEVICIUS, "fp32 and mixed precision look alike; no scale was needed")]),
]


def spread(values, digits=1):
    """Mean ± standard deviation."""
    values = [value for value in values if value is not None]
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values) or "–"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def worst_site(run):
    """Returns, for a run, the largest mean over the samples of a site's share of non-zero gradients that became
    zero."""
    means = [statistics.mean(shares) for site in run["sites"] if (shares := [g for g in site["gamma_measured"] if g is not None])]
    return 100 * max(means) if means else None


def flushed(run):
    """Returns, over all gradients of each site's last histogram, the shares that became zero and that were zero,
    both in percent. A site that had only zeros has no histogram."""
    nonzero = zeros = lost = 0
    for site in run["sites"]:
        histogram = site["histogram"]
        if not histogram:
            continue
        at = site["iteration"].index(histogram["iteration"])
        count, share = sum(histogram["counts"]), site["zeros"][at]
        nonzero += count
        zeros += count * share / (1 - share)
        lost += count * site["gamma_measured"][at]
    return (100 * lost / nonzero, 100 * zeros / (nonzero + zeros)) if nonzero else (None, None)


def scales(runs):
    """Returns the smallest and the largest exponent of a site at the end."""
    last = [site["alpha"][-1] for run in runs for site in run["sites"]]
    return f"2^{min(last)} … 2^{max(last)}" if last else "–"


def finished(results, workload):
    """Returns whether a comparison is finished; it writes its results after each training."""
    path = results / workload.network / "results.json"
    return path.exists() and len(json.loads(path.read_text())["runs"]) == len(workload.methods) * len(SEEDS)


def rows_of(table):
    """Cells of the table in a comparison's table.md, by method; the heads under the key None."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]
    return {None if i == 0 else row[0]: row for i, row in enumerate(cells)}


def section(workload, directory):
    """Section of one network: its table, the comparison's verdict, and the papers' claims."""
    results, said = json.loads((directory / "results.json").read_text()), (directory / "table.md").read_text()
    rows, runs = rows_of(said), results["runs"]
    heads = rows[None]
    # Columns of scores precede those about scaling.
    scores = heads[1:heads.index("gradient error %")]
    columns = ["method", *scores, "flushed at the worst site %", "zero before %", "skipped", "repeated", "scales at the end"]
    lines = [f"### {said.splitlines()[0].removeprefix('# ')}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for method in workload.methods:
        of = [run for run in runs if run["method"] == method]
        row = rows.get(method)
        if not of or row is None:
            continue
        cell = lambda head: row[heads.index(head)]
        numbers = [spread([worst_site(run) for run in of], 3), spread([flushed(run)[1] for run in of])]
        lines.append("| " + " | ".join([method, *map(cell, scores), *numbers, cell("skipped"), cell("repeated"), scales(of)]) + " |")
    lines += ["", *(line for line in said.splitlines() if line.startswith("- ")), ""]
    lines += [f"{who}: {what} ({score})." for score, who, what in workload.figures]
    lines += [f"What differs: {workload.differs}.", "", f"<sub>`{command(workload, 'gradscale')}`: {said.strip().splitlines()[-1]}</sub>", ""]
    return "\n".join(lines)


def runs_of(results, network):
    """Finished runs of a comparison; none if it was not done."""
    path = results / network / "results.json"
    return json.loads(path.read_text())["runs"] if path.exists() else []


def paired_with(results, network, method, baseline, measure):
    """Differences of two methods over the same seeds, and the baseline's mean; none with fewer than two pairs."""
    pairs = paired.of_runs(runs_of(results, network), method, baseline, measure)
    if len(pairs) < 2:
        return None, None
    return paired.Paired(one - other for one, other in pairs), statistics.mean(other for _, other in pairs)


class Claim:
    """Claim of a paper about two methods: `method` is `expects` (equal, above, diverges) relative to `baseline`, by
    `size` in units of the score. A `size` that could not be detected is no test of the claim."""

    def __init__(self, text, network, key, method, baseline, expects, size, factor=100):
        self.text, self.network, self.key, self.method, self.baseline = text, network, key, method, baseline
        self.expects, self.size, self.factor = expects, size, factor

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

    def row(self, results):
        """Cells: the claim, the network, losses and score as paired differences, the verdict."""
        pairs, baseline = paired_with(results, self.network, self.method, self.baseline, paired.score(self.key, self.factor))
        if pairs is None:
            return self.text, self.network, "not trained", "–"
        parts = []
        for name, measure in (("training loss", paired.training_loss), ("validation loss", paired.validation_loss)):
            loss, mean = paired_with(results, self.network, self.method, self.baseline, measure)
            if loss:
                parts.append(f"{name} {loss.text(4)}: {loss.verdict(paired.LOSS_MARGIN * abs(mean))}")
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
    Claim(f"Translation degrades slightly without a loss scale ({MICIKEVICIUS})", "seq2seq-1", "bleu", "fixed:128", "fp16", "above", 0.5, 1),
    *(Claim(f"{network} needs no loss scale: {theirs} ({MICIKEVICIUS})", network, "top_1", "fp16", "fp32", "equal", size)
      for network, theirs, size in [("alexnet", "56.77 and 56.93 %", 0.16), ("vgg-16", "65.40 and 65.43 %", 0.03), ("googlenet", "68.33 and 68.43 %", 0.1),
                                    ("inception-v2", "70.03 and 70.02 %", 0.01), ("inception-v3", "73.85 and 74.13 %", 0.28), ("resnet-50", "75.92 and 76.04 %", 0.12)]),
    *(Claim(f"ResNet-18: all within 0.7 points, {method} ({ZHAO})", "resnet-18", "top_1", method, "fp32", "equal", 0.7)
      for method in ("fp16", "fixed:8", "dynamic", "gs")),
    Claim(f"DCGAN needs no loss scale; compared by eye ({MICIKEVICIUS})", "dcgan", "nearness", "fp16", "fp32", "equal", 1.0),
]


def claims(results):
    """Observations of the papers, compared with those here."""
    rows = [claim.row(results) for claim in CLAIMS]
    fp16 = [run for run in runs_of(results, "ssd-300") if run["method"] == "fp16"]
    pairs = [(lost * (100 - zero) / 100, zero) for run in fp16 for lost, zero in [flushed(run)] if lost is not None]
    said = f"{spread([lost for lost, _ in pairs])} %; {spread([zero for _, zero in pairs])} % are zero" if pairs else "not trained"
    rows.insert(2, (f"Of SSD's activation gradients FP16 makes 31 % zero; 66.8 % are zero in f32 ({MICIKEVICIUS})", "ssd-300", said,
                    "at the end of this training, at its cast sites" if pairs else "–"))
    lines = ["## What the papers observed", "", STATISTICS, "", "| claim | here, with | paired differences | verdict |", "|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


STATISTICS = (f"Methods share weights, order and noise of each seed. So the numbers are means of paired differences with their 95 % intervals. *Equal* is a "
              f"test of equality (TOST) within {100 * paired.LOSS_MARGIN} % of a loss or {paired.SCORE_MARGIN:.0f} point of a score, fixed beforehand. *No test* is a claim smaller "
              "than what these seeds could have shown in four of five cases.")


def command(workload, program, data="DATA", out=None):
    """The command line of a comparison."""
    parts = [program, "compare", "--network", workload.network, "--data", f"{data}/{workload.data}", *workload.options, "--threads", 1]
    parts += ["--methods", ",".join(workload.methods), "--seeds", ",".join(map(str, SEEDS))]
    return " ".join(map(str, parts)) if out is None else [*map(str, parts), "--out", str(out)]


def page(results):
    """docs/workloads.md, all of it."""
    text = """# All workloads of the papers

Written by `scripts/workloads.py`. Networks of both papers, each trained by several methods from the same weights, order and noise, over three seeds; mean ± standard deviation. They are narrow and trained for minutes on two cores: levels do not compare with the papers', what becomes of a method does. *Flushed at the worst site*: of the gradients that were not zero at the cast where most were lost, the share that FP16 made zero, mean over the training. *Zero before*: of all gradients at all casts, the share that was zero before it was cast, at the end.
"""
    missing = []
    family = None
    for workload in WORKLOADS:
        directory = results / workload.network
        if not finished(results, workload):
            missing.append(workload.network)
            continue
        if workload.family != family:
            family = workload.family
            text += f"\n## {family.capitalize()}\n"
        text += "\n" + section(workload, directory)
    text += "\n" + claims(results)
    if missing:
        text += f"\nNot trained: {', '.join(missing)}.\n"
    (ROOT / "docs/workloads.md").write_text(text)
    return missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if not asked.page:
        if asked.data is None:
            parser.error("--data says where data are")
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "gradscale-cli"], cwd=ROOT, check=True)
        # A copy, so that all are of one commit whatever is built meanwhile.
        asked.results.mkdir(parents=True, exist_ok=True)
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        program = pathlib.Path(shutil.copy(pathlib.Path(target, "release", "gradscale"), asked.results)).resolve()
        for workload in WORKLOADS:
            out = asked.results / workload.network
            if finished(asked.results, workload) or asked.only and workload.network not in asked.only:
                continue
            # A comparison that ended early is run again from the start.
            shutil.rmtree(out, ignore_errors=True)
            subprocess.run(command(workload, program, asked.data, out), check=True)
    missing = page(asked.results)
    print(f"docs/workloads.md is written{'; missing: ' + ', '.join(missing) if missing else ''}")


if __name__ == "__main__":
    main()
