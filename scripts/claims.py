#!/usr/bin/env python3
"""Writes docs/claims.md: each claim of the papers and courses, its verdict here, the figure that decides, and the
command.

usage: scripts/claims.py

Figures are read from records and pages that scripts write: docs/science/*.csv, docs/gpu/figures.csv, docs/science.md
and docs/workloads.md. A claim whose figure is missing stops the script. `scripts/claims_test.py` tests the page.
"""
import csv
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/natural")]
import master_weights  # noqa: E402
import page as natural  # noqa: E402
import paired  # noqa: E402
import predicted  # noqa: E402
import record  # noqa: E402
import layer_scales  # noqa: E402
import table3  # noqa: E402
import workloads  # noqa: E402

PAGE = ROOT / "docs/claims.md"
VERDICTS = ["reproduced", "consistent", "refuted here", "no test", "not tried"]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_rows(page, heading):
    """Rows of the first table below a heading of a page, by their first cell, each by column."""
    lines = iter((ROOT / page).read_text().splitlines())
    if not any(line.lstrip("# ").startswith(heading) and line.startswith("#") for line in lines):
        raise KeyError(f"{page} has no heading {heading}")
    columns, rows = None, {}
    for line in lines:
        if line.startswith("|"):
            if columns is None:
                columns = cells(line)
            elif not line.startswith("|---"):
                rows[cells(line)[0]] = dict(zip(columns, cells(line)))
        elif columns or line.startswith("#"):
            break
    return rows


def science(method, column):
    """A cell of docs/science.md: SegNet on CamVid."""
    return table_rows("docs/science.md", "Table 3")[method][column]


def decoder_figure():
    """Training loss of a language model by gs and in f32."""
    decoder = workloads.found("decoder")
    found = decoder.pairs_of(decoder.shown_rows(), "gs", "fp32", "loss_last_half")
    if found is None:
        return "language: fewer than two pairs are on record"
    pairs, mean = found
    return f"language: the training loss of a decoder, gs − fp32, is {pairs.text(4)}: {pairs.verdict(paired.LOSS_MARGIN * abs(mean))}"


def observed(start):
    """The verdict of docs/workloads.md on a claim, which begins so."""
    rows = table_rows("docs/workloads.md", "What the papers observed")
    (row,) = [row for name, row in rows.items() if name.startswith(start)]
    return list(row.values())[-1]


# How docs/workloads.md says a verdict, where it uses other words than this page. What does not happen at a small size has not
# been tested at the claim's.
OTHER_WORDS = {"differs by more than chance": "refuted here", "not at this size": "no test"}


def observed_claim(number, claim, start, after=""):
    """The row of a claim that docs/workloads.md tests, whose text there begins with `start`."""
    said = observed(start)
    words = {verdict: verdict for verdict in VERDICTS} | OTHER_WORDS
    (verdict,) = [verdict for begin, verdict in words.items() if said.startswith(begin)]
    figure = "fewer than two pairs are on record" if verdict == "not tried" else said.removeprefix(f"{verdict}: ")
    return Claim(number, claim, verdict, figure + after, WORKLOADS)


def gpu(what, column="ratio"):
    """A figure of docs/gpu/figures.csv."""
    with (ROOT / "docs/gpu/figures.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            values = dict(zip(row["columns"].split(" | "), row["cells"].split(" | ")))
            if values.get("what") == what and values.get(column):
                return values[column]
    raise KeyError(f"docs/gpu/figures.csv has no {what}")


def natural_score(experiment, method):
    """Scores of all seeds of docs/science/natural.csv."""
    if method not in record.PLAN[experiment]:
        raise KeyError(f"{experiment} has no method {method}")
    return natural.cell(natural.Record(record.read_rows()), experiment, method)


def difference(study, method, baseline, key, digits):
    """Formats a paired difference of a study's record and the smallest detectable one, or says that there are no
    pairs."""
    found = study.STUDY.pairs_of(study.STUDY.shown_rows(), method, baseline, key)
    if found is None:
        return "no two pairs are on record yet"
    return f"{found[0].text(digits)}; {found[0].detectable:.{digits}f} was detectable"


def table3_steps():
    """Returns by how much the runs are shorter than the paper's, if there are any."""
    rows = table3.STUDY.shown_rows()
    return f". {rows[0]['steps']} steps of 16 000, a quarter of the size" if rows else ""


class Claim:
    """Claim with its verdict and reason. `figure` is a text, or a function that computes it from the records."""

    def __init__(self, number, claim, verdict, figure, command):
        if verdict not in VERDICTS:
            raise ValueError(f"{number}: {verdict}")
        self.number, self.claim, self.verdict, self.figure, self.command = number, claim, verdict, figure, command

    def row(self):
        figure = self.figure() if callable(self.figure) else self.figure
        return f"| {self.number} | {self.claim} | **{self.verdict}** | {figure} | {self.command} |"


def command(text):
    return f"`{text}`"


WORKLOADS = command("scripts/workloads.py")
TABLE3, NATURAL = command("scripts/table3.py"), command("scripts/natural/record.py")
SHIFT = command("cargo test -p gradscale-engine-tests --test shift")


def natural_verdict():
    """Returns whether torch.amp's defaults are significantly worse than f32 in both experiments with data."""
    data, worse = natural.Record(record.read_rows()), []
    for experiment, sign in (("bad_image", -1), ("short_recordings", 1)):
        ours, theirs = data.scores(experiment, "torch.amp"), data.scores(experiment, "f32")
        seeds = ours.keys() & theirs.keys()
        if len(seeds) < 2:
            return "not tried"
        pairs = paired.Paired(sign * (ours[seed] - theirs[seed]) for seed in seeds)
        worse.append(pairs.p < paired.LEVEL and pairs.mean > 0)
    return "refuted here" if all(worse) else "consistent"


def predicted_verdict(theorem):
    """Reproduced if nine of ten sites flush between a quarter of the prediction and all of it."""
    found = predicted.summary(predicted.read_rows(), theorem)
    if found is None:
        return "not tried"
    return "reproduced" if found["near"] >= 0.9 else "refuted here"


def predicted_figure(theorem):
    rows = predicted.read_rows()
    found = predicted.summary(rows, theorem)
    if found is None:
        return "nothing on record"
    networks = len({row["network"] for row in rows})
    return (f"[{found['sites']} points](science/predicted.svg), each a site at one of two thresholds, of {networks} of {len(predicted.NETWORKS)} networks: measured / predicted has the median {found['ratio']:.2f}; "
            f"it is between 1/4 and 1 at {100 * found['near']:.0f} % of them, above 1 at {100 * found['above']:.0f} %. One half is expected: the paper counts values below 2^-24, rounding flushes those below 2^-25")


def ssd_figure():
    rows = layer_scales.SSD.read_rows()
    largest = lambda kept: max(int(row["log2_scale"]) for row in rows if layer_scales.predicts(row["site"]) == kept)
    sizes = [float(row["log2_largest"]) for row in rows if row["log2_largest"]]
    return (f"[SSD-300 of 8 channels, untrained](science/layer_scales-ssd.svg): `gs` ends at up to 2^{largest(True)} in these branches and 2^{largest(False)} elsewhere. Nothing there needs a scale: "
            f"the largest magnitudes of all sites are 2^{min(sizes):.0f} to 2^{max(sizes):.0f}")


def segnet_scales():
    """Verdict and figure of the paper's Figure 3b, by both rules."""
    texts, holds = [], []
    for figure in (layer_scales.SEGNET_AUTHORS, layer_scales.SEGNET):
        exponents = {row["site"]: int(row["log2_scale"]) for row in figure.read_rows()}
        if not exponents:
            return "not tried", "nothing on record"
        cast, most = exponents[layer_scales.CAST], max(exponents.values())
        holds.append(all(exponent < cast for site, exponent in exponents.items() if site != layer_scales.CAST))
        texts.append(f"`{figure.method}` ends at 2^{cast} there; its largest is 2^{most}, at {list(exponents.values()).count(most)} of {len(exponents)} sites "
                     f"([figure](science/{figure.drawing.name}))")
    verdict = "reproduced" if all(holds) else "consistent" if any(holds) else "refuted here"
    return verdict, f"{table3.STEPS} steps: {'; '.join(texts)}"


def zhao():
    return [
        Claim("Z1", "SegNet diverges in FP16 without a scale (Table 3)", "reproduced",
              lambda: f"at 90 × 120 mIoU {science('fp16', 'mIoU %')} in FP16, {science('fp32', 'mIoU %')} in f32; with the divisor of 360 × 480 images, which makes gradients small. Not tried at that size", TABLE3),
        Claim("Z2", "Gradient scaling is above dynamic loss scaling for SegNet, 49.6 to 48.3 mIoU (Table 3)", table3.claim_of(table3.STUDY.shown_rows())[0],
              lambda: f"`gs:authors` − `zhao`, mIoU: {difference(table3, 'gs:authors', 'zhao', 'miou', 2)}{table3_steps()}", TABLE3),
        Claim("Z3", "Gradient scaling stays below f32, because α of the cast behind the softmax is capped at 65504 (5.4)", "refuted here",
              lambda: f"the cap is that of α stored in FP16. With an integer exponent `gs` flushes {science('gs', 'flushed at worst %')} % at worst; mIoU {science('gs', 'mIoU %')}, f32 {science('fp32', 'mIoU %')}", TABLE3),
        observed_claim("Z4", "SSD-300, batch 8: gradient scaling 76.35, dynamic 69.26 mAP (Table 2)",
                       "Gradient scaling is above a dynamic loss scale for SSD-300", "; the backbone is untrained"),
        observed_claim("Z5", "SSD-512, batch 8: 79.24 and 75.33; batch 32: all within 0.3 (Table 2)", "The same for SSD-512", "; batch 32 was not run"),
        Claim("Z6", "Dynamic loss scaling overflows often, and its dropped batches cost accuracy (5.3)", "consistent",
              lambda: f"`dynamic:10` drops {science('dynamic:10', 'skipped')} of {table3.STEPS} batches on SegNet: mIoU {science('dynamic:10', 'mIoU %')}, f32 {science('fp32', 'mIoU %')}. Where rare batches are the large ones it costs everything: {natural_score('rare_reward', 'torch.amp')}", f"{TABLE3}, {NATURAL}"),
        Claim("Z7", "Fixed scales differ much; the best needs a search (Fig. 1a)", "not tried", "–", command("gradscale compare --sweep")),
        observed_claim("Z8", "ResNet-18 and -50: all methods within 0.7 points (Table 1)", "ResNet-18: all within 0.7 points, gs"),
        Claim("Z9", "Theorem 1 predicts the share of a product's gradients that flushes", predicted_verdict(1), lambda: predicted_figure(1), command("scripts/predicted.py")),
        Claim("Z10", "Theorem 2 predicts it for the cast behind a softmax", predicted_verdict(2), lambda: predicted_figure(2), command("scripts/predicted.py")),
        Claim("Z11", "γ′ = 10⁻³ keeps the flushed share below 0.1 % (4.2)", "refuted here",
              lambda: f"worst site and step of SegNet: `gs:paper` {science('gs:paper', 'flushed at worst %')} %, `gs:authors` {science('gs:authors', 'flushed at worst %')} %, `gs` {science('gs', 'flushed at worst %')} %", TABLE3),
        Claim("Z12", "The overflow constraint prevents overflows (4.2)", "refuted here", "holds at a decision, not in the steps between two. Losses that alternate overflow in each interval (made-up regimes)", command("gradscale regimes")),
        Claim("Z13", "No heuristics, nothing to tune (2, 6)", "consistent", "`gs` has the same settings in every table here. The authors' code has two bounds that were tuned ([rules](guide/paper-comparison.md))", WORKLOADS),
        Claim("Z14", "A large α is harmful by itself: it enlarges variance (4.2)", "refuted here", "powers of two change no bit: with the loss times 2^-30 the weights are the same", SHIFT),
        Claim("Z15a", "Scales are largest at the cast behind SegNet's softmax (Fig. 3b)", segnet_scales()[0], segnet_scales()[1], command("scripts/layer_scales.py")),
        Claim("Z15b", "Scales are largest in SSD's branches that predict (Fig. 2)", "no test", ssd_figure, command("scripts/layer_scales.py")),
        Claim("Z16", "Overhead is negligible at an interval of 100 (5.1)", "reproduced",
              lambda: f"step with scaling / without, on a GPU, interval 10: {gpu('segnet step: scaling on / off')} in images per second", "[gpu.md](gpu.md)"),
        Claim("Z17", "Future work: language, FP8 (6)", "consistent",
              lambda: f"{decoder_figure()}. FP8: formats, no training", WORKLOADS),
    ]


def micikevicius():
    return [
        Claim("M1", "Master weights in f32 matter: without, 80 % relative loss of accuracy", master_weights.verdict_of(master_weights.STUDY.shown_rows()),
              lambda: f"ResNet-18 on CIFAR-10, O3 − O2, training loss: {difference(master_weights, master_weights.O3, master_weights.O2, 'loss_last_half', 4)}; top-1: {difference(master_weights, master_weights.O3, master_weights.O2, 'top_1', 2)}", command("scripts/master_weights.py")),
        observed_claim("M2", "SSD: 31 % of activation gradients become zero in FP16, training diverges, a scale of 8 saves it", "SSD diverges in FP16",
                       "; the distribution of gradients needs a trained VGG-16"),
        Claim("M3", "bigLSTM diverges after 300 000 steps in FP16; a scale of 128 saves it", "not tried", lambda: f"300 000 steps were not run; {workloads.found('biglstm').steps} steps: {observed('bigLSTM needs').split(': ')[-1]}", WORKLOADS),
        observed_claim("M4", "Translation degrades slightly without a scale", "Translation degrades"),
        observed_claim("M5", "Classification, Faster R-CNN, DCGAN and Deep Speech 2 need no scale (here: Faster R-CNN)", "Faster R-CNN needs"),
        observed_claim("M6", "FP16 is 5 to 10 % better on speech, as a regulariser", "DeepSpeech 2 in FP16"),
        Claim("M7", "Products need sums in f32", "not tried", "all products here have them", "–"),
        Claim("M8", "Reductions, norms and losses need f32", "not tried", "by policy here", command("gradscale plan")),
        Claim("M9", "Updates below 2^-24, or 2^11 times smaller than a weight, vanish in FP16 weights", "not tried", "as M1", "–"),
    ]


def courses():
    return [
        Claim("N1", "A dynamic loss scale with an interval of 2000 is robust (NVIDIA's guide)", natural_verdict(),
              lambda: f"one NaN image in 10 000, test accuracy %: {natural_score('bad_image', 'torch.amp')}; f32 {natural_score('bad_image', 'f32')}; `attach` {natural_score('bad_image', 'attach')}. Short recordings, character errors %: {natural_score('short_recordings', 'torch.amp')}; f32 {natural_score('short_recordings', 'f32')}; `attach` {natural_score('short_recordings', 'attach')}", NATURAL),
        Claim("C1", "Mixed precision is 2 to 5 times as fast, with half the memory", "consistent",
              lambda: f"activations {science('gs', 'activations MB')} MB, in f32 {science('fp32', 'activations MB')}. Step on a GPU {gpu('segnet step: half with scaling / f32')} times as fast as this engine's own f32, which is not TF32", f"{TABLE3}, [gpu.md](gpu.md)"),
        Claim("C2", "Accuracy and hyper-parameters stay as they are", equal_verdict(),
              lambda: f"`gs` − fp32, training loss of the last half: {difference(table3, 'gs', 'fp32', 'loss_last_half', 4)}", TABLE3),
    ]


def equal_verdict():
    """Returns whether gs equals f32 within the margin that was fixed before the experiment."""
    found = table3.STUDY.pairs_of(table3.STUDY.shown_rows(), "gs", "fp32", "loss_last_half")
    if found is None:
        return "not tried"
    pairs, mean = found
    return {"equal": "reproduced", "differs": "refuted here", "not told apart": "consistent", "no test": "no test"}[pairs.verdict(paired.LOSS_MARGIN * abs(mean))]


HEAD = "| # | claim | here | figure that decides | by |\n|---|---|---|---|---|\n"
NEGATIVE = """## Tried without an effect

We looked for networks where one loss scale fails by its range, and did not find a natural one that trains in f32. These are results, and they stay.

- *Plain deep networks.* Stacks of 12 to 24 layers of tanh, sigmoid or ReLU without norms have no scale that serves all layers. f32 does not train them either, by Adam: gradients that vanish beyond FP16 vanish for the optimizer, too.
- *Small layer scales.* A layer scale of 10⁻⁶, as ConvNeXt has it, leaves a single scale few binades in the first step. After some dozen steps there are many.
- *Large contrastive batches* and *image fits of coordinates* leave a single scale more than 20 binades.

These four were measured once, with one seed, by an emulation of FP16 storage in PyTorch that is not part of this repository. So they have no figures here.
"""


def render():
    """docs/claims.md."""
    parts = [("Zhao, Vogel, Ahmed and Luk 2020", zhao()), ("Micikevicius et al. 2018", micikevicius()), ("Guides and courses", courses())]
    claims = [claim for _, some in parts for claim in some]
    counts = ", ".join(f"{sum(claim.verdict == verdict for claim in claims)} {verdict}" for verdict in VERDICTS)
    text = f"""# What became of the claims

Written by `scripts/claims.py`, which reads each figure from what other scripts have recorded. Of {len(claims)} claims: {counts}.

- *Reproduced*: an effect with the right sign beyond chance, or an equality within a margin that was fixed beforehand.
- *Consistent*: not contradicted, and the test could not have contradicted it clearly.
- *Refuted here*: a test with power contradicts it, at the size that was tested.
- *No test*: an effect as large as the claim would not have been seen.
- *Not tried*: nothing here tests the claim itself.
"""
    for title, some in parts:
        text += f"\n## {title}\n\n{HEAD}" + "".join(f"{claim.row()}\n" for claim in some)
    return re.sub(r" +\n", "\n", text + "\n" + NEGATIVE)


if __name__ == "__main__":
    PAGE.write_text(render())
