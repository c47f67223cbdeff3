#!/usr/bin/env python3
"""Writes docs/natural.md, a section of docs/science.md, and the first table of results in README.md and python/README.md from
docs/science/natural.csv. A section of docs/natural.md is from docs/science/grpo.csv.

usage: scripts/natural/page.py
"""
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(FOLDER), str(ROOT / "scripts")]
import grpo  # noqa: E402
import paired  # noqa: E402
import record  # noqa: E402

PAGE = ROOT / "docs/natural.md"
SCIENCE = ROOT / "docs/science.md"
MARKS = "<!-- natural: written by scripts/natural/page.py -->", "<!-- end of natural -->"
# Each README, and the way from it to the page.
READMES = {ROOT / "README.md": "docs/natural.md", ROOT / "python/README.md": "../docs/natural.md"}
WAYS = ["f32", "torch.amp", "attach"]
NAMES = {
    "f32": "f32", "torch.amp": "torch.amp float16, defaults", "attach": "`gradscale.torch.attach`", "floor:1": "torch.amp, scale at least 1",
    "fixed:128": "torch.amp, scale fixed at 128", "zero_infinity": "torch.amp, `zero_infinity=True`",
}
# What cures each experiment without gradient scaling: a method of the record, or None where no loop here has it; then why.
CURES = {
    "bad_image": [
        ("floor:1", "a floor under the scale stops its fall"), ("fixed:128", "a fixed scale never falls"),
        (None, "a check of the data finds the image"),
    ],
    "short_recordings": [
        ("floor:1", "a floor under the scale stops its fall"), ("fixed:128", "a fixed scale never falls"),
        ("zero_infinity", "the option of the loss leaves such recordings out"),
    ],
    "rare_reward": [("fixed:128", "a fixed scale does not grow"), (None, "so does a cap on growth; a floor does not")],
}
# Last step of each experiment. `None` means that runs end at their goal.
LAST_STEP = {"bad_image": 60, "short_recordings": 800, "rare_reward": None}
TITLES = {
    "bad_image": ("One NaN image among 10 000", "CIFAR-10, MLP, 60 epochs: test accuracy %"),
    "short_recordings": ("17 of 2000 recordings shorter than their transcript", "spoken digits, CTC with PyTorch's default `zero_infinity=False`: character errors %"),
    "rare_reward": ("Rare reward", "REINFORCE on a combination lock, 40 000 updates: locks opened"),
}


class Record:
    """Rows of the record by experiment, method, seed and step."""

    def __init__(self, rows):
        self.rows = rows

    def runs(self, experiment, method, step=None):
        """The rows of a step, or the last rows, by seed."""
        found = {}
        for row in self.rows:
            if (row["experiment"], row["method"]) == (experiment, method) and (step is None or int(row["step"]) == step):
                found[int(row["seed"])] = row
        return found

    def methods(self, experiment):
        return [method for method in NAMES if self.runs(experiment, method, LAST_STEP[experiment])]

    def scores(self, experiment, method, step=None):
        return {seed: float(row["score"]) for seed, row in self.runs(experiment, method, step or LAST_STEP[experiment]).items()}

    def origin(self, experiment):
        """Commits and versions of the rows, as a sentence."""
        found = sorted({(row["commit"], row["torch"], row["gradscale"], row["processor"]) for row in self.rows if row["experiment"] == experiment})
        return "; ".join(f"commit {commit}, PyTorch {torch}, gradscale {version}, one thread of a CPU with {cpu}" for commit, torch, version, cpu in found)


def missing(data):
    """Returns how many planned seeds of each experiment and method are not in the record."""
    counts = {}
    for experiment, methods in record.PLAN.items():
        for method, seeds in methods.items():
            if lacking := seeds - len(data.runs(experiment, method, LAST_STEP[experiment])):
                counts[experiment, method] = lacking
    return counts


def missing_text(data):
    counts = missing(data)
    if not counts:
        return ""
    return " Planned and not run yet, seeds: " + "; ".join(f"{NAMES[method]} of {experiment}: {count}" for (experiment, method), count in counts.items()) + "."


def listed(values):
    """The value of each seed, in the order of seeds."""
    return " ".join(f"{value:.1f}" for _, value in sorted(values.items()))


def spread(values):
    values = list(values)
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def solved(runs):
    """Returns how many locks were opened, and the number of dropped batches."""
    return sum(float(row["score"]) > 50 for row in runs.values()), sum(int(row["skipped"]) for row in runs.values()), sum(int(row["events"]) for row in runs.values())


def cell(data, experiment, method):
    """A result in the READMEs' table."""
    runs = data.runs(experiment, method, LAST_STEP[experiment])
    if not runs:
        return "not run yet"
    if experiment == "rare_reward":
        opened, dropped, rewarded = solved(runs)
        return f"{opened} of {len(runs)}" + (f"; {dropped} of {rewarded} rewarded batches dropped" if dropped else "")
    return listed(data.scores(experiment, method))


def scales(runs):
    """The loss scale at the end, from the least to the greatest."""
    found = [float(row["log2_scale"]) for row in runs.values() if row["log2_scale"]]
    if not found:
        return "–"
    least, most = (f"2^{round(value)}" for value in (min(found), max(found)))
    return least if least == most else f"{least} to {most}"


def cures_cell(data, experiment):
    """What else cures an experiment: results of the cures on record, then the names of those without."""
    short = lambda method: NAMES[method].removeprefix("torch.amp, ")
    methods = [method for method, _ in CURES[experiment] if method]
    has_rows = lambda method: bool(data.runs(experiment, method, LAST_STEP[experiment]))
    found = [f"{short(method)}: {cell(data, experiment, method)}" for method in methods if has_rows(method)]
    lacking = [short(method) for method in methods if not has_rows(method)]
    return "; ".join([*found, *([f"not run yet: {', '.join(lacking)}"] if lacking else [])])


def cures_text(data, experiment):
    """Sentences about what else cures an experiment, each with its result."""
    parts = []
    for method, why in CURES[experiment]:
        if method is None:
            parts.append(f"{why} (follows from the statement, no run)")
        elif data.runs(experiment, method, LAST_STEP[experiment]):
            parts.append(f"{why} ({NAMES[method]}: {cell(data, experiment, method)})")
        else:
            parts.append(f"{why} ({NAMES[method]}: not run yet)")
    return "Also cured by: " + "; ".join(parts) + "."


def science_section(data):
    """The section of docs/science.md: each experiment with the paired difference of torch.amp, and what else cures it."""
    lines = [
        "## Control: three natural experiments", "",
        "In these experiments the range of FP16 suffices for one scale, and the control of that scale fails. torch.amp and `attach` "
        "are the libraries themselves, on one CPU thread. [Where one dynamic loss scale fails](natural.md) has curves, scales and "
        "intervals, [Control](guide/control.md) the proofs.", "",
        "| experiment | f32 | torch.amp float16, defaults | `attach` | torch.amp − f32, paired | `attach` − f32, paired |",
        "|---|---|---|---|---|---|",
    ]
    for experiment, (title, what) in TITLES.items():
        differences = ["–", "–"]
        if experiment != "rare_reward":
            found = [difference(data, experiment, way) for way in WAYS[1:]]
            differences = [f"{text}: {verdict}" if verdict != "–" else "fewer than two pairs" for text, _, verdict in found]
        lines.append("| " + " | ".join([f"{title} ({what})", *(cell(data, experiment, way) for way in WAYS), *differences]) + " |")
    lines.append("")
    lines += [f"- *{title}.* {cures_text(data, experiment)}" for experiment, (title, _) in TITLES.items()]
    commits = ", ".join(sorted({row["commit"] for row in data.rows}))
    lines += ["", "Each of these cures needs somebody who knows the cause. Gradient scaling needs no knowledge of it.", "",
              f"<sub>`scripts/natural/record.py`; rows of commit {commits}.{missing_text(data)}</sub>"]
    return "\n".join(lines)


def summary(data, link):
    """The table of the READMEs."""
    lines = ["| experiment | " + " | ".join(NAMES[way] for way in WAYS) + " | also cured by |", "|---|---|---|---|---|"]
    for experiment, (title, what) in TITLES.items():
        # A row needs runs of both compared methods: f32 and torch.amp's defaults.
        if not all(data.runs(experiment, way, LAST_STEP[experiment]) for way in WAYS[:2]):
            continue
        cells = [cell(data, experiment, way) for way in WAYS]
        lines.append("| " + " | ".join([f"**{title}** ({what})", cells[0], f"**{cells[1]}**", cells[2], cures_cell(data, experiment)]) + " |")
    text = f"One number for each seed. The columns are the libraries themselves, not simulations, on one CPU thread: "
    text += "PyTorch's autocast to float16 with `torch.amp.GradScaler`, and `attach`. Every loop skips a batch whose gradients are not finite. What differs is what torch.amp does to its scale then. "
    commits = sorted({row["commit"] for row in data.rows})
    text += f"Written by `scripts/natural/page.py` from rows of commit {', '.join(commits)}; [curves, scales and paired differences]({link})."
    return "\n".join([*lines, "", text])


def difference(data, experiment, method):
    """Paired with f32: mean, interval and verdict."""
    ours, theirs = data.scores(experiment, method), data.scores(experiment, "f32")
    pairs = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if method == "f32" or len(pairs) < 2:
        return "–", "–", "–"
    one = paired.Paired(pairs)
    return one.text(1), f"{one.detectable:.1f}", one.verdict(paired.SCORE_MARGIN)


def curve_table(data, experiment, steps, unit):
    """Scores of each method at some steps, each seed, with scales and skips at the end."""
    lines = ["| method | " + " | ".join(f"{unit} {step}" for step in steps) + " | scale at the end | batches skipped | − f32, points | detectable difference | verdict |"]
    lines.append("|---" * (len(steps) + 6) + "|")
    for method in data.methods(experiment):
        cells = [listed(data.scores(experiment, method, step)) for step in steps]
        runs = data.runs(experiment, method, LAST_STEP[experiment])
        skipped = " ".join(row["skipped"] for _, row in sorted(runs.items()))
        lines.append("| " + " | ".join([NAMES[method], *cells, scales(runs), skipped, *difference(data, experiment, method)]) + " |")
    return "\n".join(lines)


def lock_table(data):
    lines = ["| method | opened | at update | rewarded batches dropped | scale at the end |", "|---|---|---|---|---|"]
    for method in data.methods("rare_reward"):
        runs = data.runs("rare_reward", method)
        opened, dropped, rewarded = solved(runs)
        at = " ".join(row["step"] if float(row["score"]) > 50 else "–" for _, row in sorted(runs.items()))
        lines.append(f"| {NAMES[method]} | {opened} of {len(runs)} | {at} | {dropped} of {rewarded} | {scales(runs)} |")
    return "\n".join(lines)


def render(data):
    """docs/natural.md."""
    bad, short, rare = (data.origin(experiment) for experiment in TITLES)
    return f"""# Where one dynamic loss scale fails

Written by `scripts/natural/page.py` from [science/natural.csv](science/natural.csv), which `scripts/natural/record.py` records. Both sides are real software on the CPU: PyTorch's `autocast` to float16 with `torch.amp.GradScaler("cpu")` at its defaults, and `gradscale.torch.attach`. Loops are those of the documentation of each. Cells have a number for each seed. Differences are paired by seed, with 95 % intervals; *equal* is a test of equality within {paired.SCORE_MARGIN:.0f} point, fixed beforehand (`scripts/paired.py`). Settings are those of a first study, and nothing was tuned afterwards. *Detectable*: a difference of this size is seen in four of five cases.{missing_text(data)}

The statements that explain these results have proofs in [Control](guide/control.md). In all three experiments the range of FP16 suffices. What fails is the control of the scale.

## One NaN image among 10 000

Image 4321 of CIFAR-10's first 10 000 is NaN, as a broken decoder or a division by zero in an augmentation leaves it. The network is an MLP (3072, 128, 64, 10), trained by SGD for 60 epochs of 78 steps. Each way skips the batch of that image, about once an epoch. torch.amp also halves its scale each time, and doubles it only after 2000 clean steps. So the scale loses one bit an epoch (statement 1 of the guide). For 30 epochs nothing shows. Then gradients flush, and what is left of them destroys the network. There is no warning.

{curve_table(data, "bad_image", [30, 40, 60], "accuracy %, epoch")}

`attach` reports the NaN batches and changes no exponent for them. The loop is [python/examples/one_bad_image.py](../python/examples/one_bad_image.py), a plain loop of PyTorch.

{cures_text(data, "bad_image")}

<sub>`scripts/natural/record.py --data DATA --only bad_image`; {bad}.</sub>

## Short recordings

Spoken digits (FSDD), 1800 for training and 200 for the test. The network keeps every fourth frame of 10 ms, as many speech networks do. Then 17 recordings, 16 of them for training, have fewer outputs than CTC needs for their letters, and the loss of their batches is infinite with PyTorch's default `zero_infinity=False`. Nobody made these recordings up. All methods skip these batches.

{curve_table(data, "short_recordings", [200, 400, 800], "character errors %, step")}

{cures_text(data, "short_recordings")}

<sub>`scripts/natural/record.py --data DATA --only short_recordings`; {short}.</sub>

## Rare reward

REINFORCE on a combination lock: five digits of eight, reward 100 if all are right. The first policy opens it in about one update of 4096. Until then gradients are exactly zero, which a GradScaler counts as clean steps. Its scale grows until the gradients of a reward overflow, and that batch is dropped (statement 2 of the guide). A lock is open when the policy opens it in half of all episodes.

{lock_table(data)}

{cures_text(data, "rare_reward")}

<sub>`scripts/natural/record.py --data DATA --only rare_reward`; {rare}.</sub>

{grpo.section(grpo.read_rows(grpo.RECORD))}

## What else cures it

Each experiment names its cures above. Those without a run follow from [Control](guide/control.md). Each needs somebody who knows the cause. Gradient scaling does not: it changes no exponent for a batch that no exponent makes finite, and it repeats a batch that overflows.
"""


def between_marks(text, table):
    """A page with the table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}"


def main():
    data = Record(record.read_rows())
    PAGE.write_text(render(data))
    for path, link in READMES.items():
        path.write_text(between_marks(path.read_text(), summary(data, link)))
    SCIENCE.write_text(between_marks(SCIENCE.read_text(), science_section(data)))


if __name__ == "__main__":
    main()
