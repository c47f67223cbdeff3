"""Page of scripts/performance.py: its results compared with the targets, and the growth of time."""

import json
import math
import pathlib
import re
import statistics
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
from shared.origin import commit, machine  # noqa: E402, F401

PAGE = ROOT / "docs/performance.md"
DRAWINGS = ROOT / "docs/performance"
# Markers around the results of one machine, and the position for those of a new machine.
MARKS = "<!-- measured on {}: written by scripts/performance.py -->", "<!-- end of {} -->"
# Profiles of the goals: that of all measurements, and its name before `release` was made to build quickly.
PROFILES = {"measured", "release"}
END_OF_MACHINES = "<!-- machines end here -->"
NETWORKS = {"segnet": "SegNetBasic", "resnet-18": "ResNet-18", "gru": "GRU language model", "decoder": "transformer"}
# Baselines of products below this share of the machine's peak are reported as weak.
WEAK = 0.6


@dataclass
class Goal:
    """Target of a ratio of our result to the peer's."""

    best: float
    floor: float
    # True for times and memory, where less is better; false for rates.
    less: bool = False

    def met(self, ratio, limit):
        return ratio <= limit if self.less else ratio >= limit

    def short(self, ratio, limit):
        """Returns by how many percent a ratio misses a limit."""
        percent = 100 * (ratio / limit - 1 if self.less else 1 - ratio / limit)
        return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1f} %"

    def outcome(self, ratio):
        if self.met(ratio, self.best):
            return "goal"
        if self.met(ratio, self.floor):
            return f"floor; {self.short(ratio, self.best)} short of the goal"
        return f"**missed** by {self.short(ratio, self.floor)}"

    def words(self):
        sign = "≤" if self.less else "≥"
        return f"{sign} {self.best:g}", f"{sign} {self.floor:g}"


SEGNET, BF16, OTHERS = Goal(0.8, 1.0, True), Goal(1.0, 1.4, True), Goal(0.9, 1.1, True)
MEMORY, STATISTICS = Goal(0.52, 0.6, True), Goal(0.99, 0.96)
RATES = {"gemm": Goal(0.95, 0.85), "shapes": Goal(0.9, 0.75), "conv": Goal(0.95, 0.8), "statistics": STATISTICS}
CASTS = {"Counts": Goal(0.95, 0.85), "Full": Goal(0.85, 0.7), "Moments": Goal(0.6, 0.4)}
DETAILS = {"Counts": "counts", "Full": "counts and histogram", "Moments": "counts, histogram and moments"}
# Minimum share of a copy's bandwidth; an operator below it must be faster than PyTorch.
OF_A_COPY = 0.7
# Bytes that the bench's copy reads and writes.
COPIED = 128 * 2**20
# AVX2 at half of AVX-512's rate; the others are reported.
AVX2 = Goal(0.9, 0.8)
HEADS = {
    "steps": "Training steps", "gemm": "Products of square matrices", "shapes": "Products as trainings have them",
    "conv": "Convolutions", "statistics": "Products with statistics, beside those without", "casts": "Casts, 64 MiB of f32",
    "elements": "Norms, cross-entropy, functions, optimizers", "memory": "Memory of a step", "isa": "Other instruction sets",
}
# Peers of each target, by the beginning of their names; other peers are listed for information.
BASELINES = {"gemm": ["OpenBLAS"], "shapes": ["OpenBLAS", "PyTorch f32", "`gemm`"], "conv": ["oneDNN"], "elements": ["PyTorch"]}


def fastest(row, *beginnings):
    """Returns the fastest of the peers whose names begin so, or None."""
    found = [name for name in row["theirs"] if not beginnings or name.startswith(beginnings)]
    return min(found, key=lambda name: statistics.median(row["theirs"][name]), default=None)


def quotients(row, other, less):
    """Ratios of our results to the peer's, turn by turn."""
    pairs = zip(row["ours"], row["theirs"][other])
    return [ours / theirs if less else theirs / ours for ours, theirs in pairs]


def spread(ratios):
    """Formats the median with the quartiles."""
    if len(ratios) < 3:
        return f"{statistics.median(ratios):.2f}"
    first, _, third = statistics.quantiles(ratios, n=4)
    return f"{statistics.median(ratios):.2f} ({first:.2f} – {third:.2f})"


def named(row):
    """Describes the measured operation in words."""
    if "network" not in row:
        return row["case"]
    sizes = row["sizes"]
    if row["network"] in ("segnet", "resnet-18"):
        width, n, h, w = sizes
        return f"{NETWORKS[row['network']]}, {width} channels, {n} × {h} × {w}"
    n, t, _, width, rest, layers = sizes
    inside = f"{rest} units" if row["network"] == "gru" else f"width {width}, {rest} heads"
    return f"{NETWORKS[row['network']]}, {layers} layers, {inside}, {n} × {t}"


def amount(row, values):
    """Formats a median in the unit of its row."""
    value = statistics.median(values)
    if "unit" in row:
        return f"{row['amount'] / value / 1e9:.3g} {row['unit']}"
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def compared(row, other, goal):
    """Cells from the baseline on; other peers are listed without a verdict."""
    ratios = quotients(row, other, goal.less)
    others = "; ".join(f"{name} {amount(row, values)}" for name, values in row["theirs"].items() if name != other)
    return [other, amount(row, row["ours"]), amount(row, row["theirs"][other]), spread(ratios), *goal.words(),
            goal.outcome(statistics.median(ratios)), others]


def head(row):
    return [named(row), str(row["threads"])]


def of_steps(row):
    goal = SEGNET if row["network"] == "segnet" else OTHERS
    cells = [head(row) + compared(row, fastest(row, "PyTorch f32"), goal)]
    if other := fastest(row, "PyTorch bf16"):
        cells.append(head(row) + compared(row, other, BF16))
    return cells


def of_rates(part):
    def cells(row):
        other = fastest(row, *BASELINES[part]) if part in BASELINES else fastest(row)
        return [head(row) + compared(row, other, RATES[part])]

    return cells


def of_casts(row):
    detail = row["case"].split()[-1]
    return [[f"cast with {DETAILS[detail]}", str(row["threads"]), *compared(row, fastest(row), CASTS[detail])]]


def of_elements(row):
    limit = lambda seconds: row["limit"] / row["copy"] * COPIED / seconds / 1e9
    shares = [row["amount"] / ours / 1e9 / limit(copy) for ours, copy in zip(row["ours"], row["theirs"]["copy"])]
    of_copy, other = statistics.median(shares), fastest(row, *BASELINES["elements"])
    theirs = [f"copy: {limit(statistics.median(row['theirs']['copy'])):.3g} {row['unit']}"]
    ahead = None
    if other:
        ahead = quotients(row, other, False)
        theirs.append(f"{other}: {amount(row, row['theirs'][other])}")
    ratio = f"{spread(shares)} of the copy" + (f"; {spread(ahead)} × PyTorch" if ahead else "")
    lead = statistics.median(ahead) if ahead else None
    if of_copy >= OF_A_COPY or lead and lead > 1:
        outcome = "goal"
    elif lead:
        outcome = f"**missed**: {100 * (1 - lead):.0f} % behind PyTorch"
    else:
        outcome = f"**missed** by {100 * (1 - of_copy / OF_A_COPY):.0f} %; no peer"
    return [[*head(row), "a copy; PyTorch f32", amount(row, row["ours"]), "; ".join(theirs), ratio, "≥ 0.7 of the copy, or ahead",
             "ahead of PyTorch", outcome, ""]]


def of_memory(row):
    ours, theirs = statistics.median(row["ours"]), statistics.median(row["theirs"]["PyTorch f32"])
    mega = lambda size: f"{size / 1e6:.0f} MB"
    return [[*head(row), "PyTorch f32", mega(ours), mega(theirs), f"{ours / theirs:.2f}", *MEMORY.words(), MEMORY.outcome(ours / theirs), ""]]


def of_isa(row):
    (widest,) = row["theirs"]
    ratios, beside = quotients(row, widest, False), f"{widest}'s rate"
    goal = floor = outcome = "–"
    if (row["isa"], widest) == ("AVX2", "AVX-512"):
        ratios, beside = [2 * ratio for ratio in ratios], "half of AVX-512's rate"
        goal, floor, outcome = *AVX2.words(), AVX2.outcome(statistics.median(ratios))
    return [[f"{row['isa']}: {named(row)}", str(row["threads"]), beside, amount(row, row["ours"]), amount(row, row["theirs"][widest]),
             spread(ratios), goal, floor, outcome, ""]]


CELLS = {"steps": of_steps, **{part: of_rates(part) for part in RATES}, "casts": of_casts, "elements": of_elements,
         "memory": of_memory, "isa": of_isa}
COLUMNS = ["what", "threads", "baseline", "ours", "theirs", "ratio (quartiles)", "goal", "floor", "outcome", "others"]


def line(part, row):
    """A row for the terminal."""
    cells = CELLS[part](row) if part in CELLS else [[*head(row), amount(row, row["ours"])]]
    return "\n".join(" | ".join(one) for one in cells)


def weak(part, found):
    """Baselines that are far below the machine's peak."""
    said = []
    for row in found["rows"] if part == "steps" else []:
        bf16, f32 = (fastest(row, f"PyTorch {name}") for name in ("bf16", "f32"))
        if bf16 and (times := statistics.median(row["theirs"][bf16]) / statistics.median(row["theirs"][f32])) > 1:
            said.append(f"{named(row)}, {row['threads']} thread{'s' * (row['threads'] > 1)}: {bf16} takes {times:.1f} times as long as {f32}")
    for row in found["rows"] if part in BASELINES and part != "elements" else []:
        rate = lambda name: row["amount"] / statistics.median(row["theirs"][name]) / 1e9 / row["peak"]
        other = fastest(row, *BASELINES[part])
        if rate(other) < WEAK:
            said.append(f"{named(row)}, {row['threads']} thread{'s' * (row['threads'] > 1)}: {other} reaches {100 * rate(other):.0f} % of the peak")
    kernel = found["peers"]["OpenBLAS"]
    wide = {"AVX2": ["Haswell", "Zen"], "NEON": ["neoverse", "armv8"]}.get(found["instructions"], ["SkylakeX", "Cooperlake", "Sapphirerapids"])
    if part in ("gemm", "shapes") and not any(name.lower() in kernel.lower() for name in wide):
        said.append(f"OpenBLAS {kernel}: not its widest kernel")
    return said


def origin(found):
    peers = ", ".join(f"{key} {value}" for key, value in found["peers"].items())
    busy = f", load {found['load']:.1f} when it began" if found["load"] > 0.5 else ""
    less = ", --quick" if found["quick"] else ""
    profile = f", profile {found['profile']}: not that of the goals" if found["profile"] not in PROFILES else ""
    return f"<sub>{found['date']}, commit {found['commit']}, {found['machine']}{busy}{less}{profile}; {peers}.</sub>"


def table(part, found):
    rows = [cells for row in found["rows"] for cells in CELLS[part](row)]
    lines = [f"### {HEADS[part]}", "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    if said := weak(part, found):
        lines += ["", "Weak baselines: " + "; ".join(said) + "."]
    return "\n".join([*lines, "", origin(found), ""])


def slope(points):
    """The exponent with which time grows: least squares of the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    return statistics.linear_regression(xs, ys).slope


AXES = {"images": lambda row: row["sizes"][1], "pixels of an image": lambda row: row["sizes"][2] * row["sizes"][3],
        "channels": lambda row: row["sizes"][0], "threads": lambda row: row["threads"]}


# Drawn quantities of a step: label, and value for us and for PyTorch's faster layout.
DRAWN = {"ms of a step": lambda row: [1000 * statistics.median(row["ours"]), 1000 * statistics.median(row["theirs"][fastest(row)])],
         "MB of a step": lambda row: [row["memory"]["ours"] / 1e6, row["memory"]["PyTorch f32"] / 1e6]}


def series(found, drawn):
    """Points of each axis, ours and PyTorch's: {axis: {who: [(x, value)]}}."""
    points = {}
    for row in found["rows"]:
        of_axis = points.setdefault(row["series"], {})
        for who, value in zip(["ours", "PyTorch f32"], DRAWN[drawn](row), strict=True):
            of_axis.setdefault(who, []).append((AXES[row["series"]](row), value))
    return points


def slug(title):
    """A name for files."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def draw(axes, axis, drawn, all_of, slopes):
    """One drawing of points on both logarithmic axes."""
    from matplotlib import ticker

    for who, points in all_of.items():
        axes.plot(*zip(*points), marker="o", label=f"{who}, slope {slopes[who]}")
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel=drawn)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks([x for x, _ in all_of["ours"]], [str(x) for x, _ in all_of["ours"]], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()


def growth(found):
    """Drawings, and slopes as a table."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gradscale"
    from matplotlib import pyplot

    folder = slug(title(found))
    (DRAWINGS / folder).mkdir(parents=True, exist_ok=True)
    lines = ["### How time and memory grow", "", "SegNetBasic, a step by `gs` and by PyTorch's f32, of time in its faster layout. A slope of 1: "
             "twice as much takes twice as long, or twice the memory.", "",
             "| over | of a step | slope of ours | of PyTorch | ours |", "|---|---|---|---|---|"]
    pictures = []
    for axis in series(found, "ms of a step"):
        figure, both = pyplot.subplots(1, len(DRAWN), figsize=(10, 3.2), layout="constrained")
        for axes, drawn in zip(both, DRAWN, strict=True):
            all_of = series(found, drawn)[axis]
            slopes = {who: f"{slope(points):.2f}" if len(points) > 1 else "–" for who, points in all_of.items()}
            values = ", ".join(f"{x}: {y:.3g}" for x, y in all_of["ours"])
            lines.append(f"| {axis} | {drawn.split()[0]} | {slopes['ours']} | {slopes['PyTorch f32']} | {values} |")
            draw(axes, axis, drawn, all_of, slopes)
        name = f"{folder}/{axis.split()[0]}.svg"
        figure.savefig(DRAWINGS / name, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)
        pictures.append(f"![Time and memory of a step over {axis}](performance/{name})\n")
    return "\n".join([*lines, "", *pictures, origin(found), ""])


def title(found):
    """The machine by its name and its widest instructions: processors of one name differ in these."""
    return f"{found['machine']}, {'held to ' if found.get('held') else ''}{found['instructions']}"


def measured(directory, parts):
    """Returns the machine, the text between its markers, and the missing parts."""
    texts, missing, titles = [], [], set()
    for part in parts:
        path = directory / f"{part}.json"
        if not path.exists():
            missing.append(part)
            continue
        found = json.loads(path.read_text())
        titles.add(title(found))
        texts.append(growth(found) if part == "growth" else table(part, found))
    if len(titles) != 1:
        sys.exit(f"{directory} has results of {' and of '.join(sorted(titles)) or 'no machine'}")
    if missing:
        texts.append(f"Not measured: {', '.join(missing)}.\n")
    (machine,) = titles
    return machine, "\n".join([f"## {machine}\n", *texts]), missing


def placed(text, machine, before):
    """Replaces the results of one machine between its markers. Other machines and hand-written text stay."""
    first, last = (mark.format(machine) for mark in MARKS)
    block = f"{first}\n\n{text}\n{last}"
    start, end = before.find(first), before.find(last)
    if 0 <= start < end:
        return before[:start] + block + before[end + len(last) :]
    if before.count(END_OF_MACHINES) != 1 or max(start, end) >= 0:
        raise ValueError(f"{PAGE.name} lacks the marks of {machine}, or the place for it")
    return before.replace(END_OF_MACHINES, f"{block}\n\n{END_OF_MACHINES}")


def fill_section(text, marks, inside):
    """Replaces what is between two marks, which must occur once."""
    if any(text.count(mark) != 1 for mark in marks) or text.index(marks[0]) > text.index(marks[1]):
        raise ValueError(f"the page lacks the marks {' and '.join(marks)}")
    before, rest = text.split(marks[0])
    return before + marks[0] + inside + marks[1] + rest.split(marks[1])[1]


def write(directory, parts):
    machine, text, missing = measured(directory, parts)
    PAGE.write_text(placed(text, machine, PAGE.read_text()))
    return missing
