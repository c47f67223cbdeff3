#!/usr/bin/env python3
"""Writes docs/gpu.md from the record in docs/gpu, or the tables of targets in the READMEs of backend-cuda and backend-wgpu.

usage: scripts/gpu_bundle/page.py [--targets]
"""
import argparse
import csv
import dataclasses
import fnmatch
import itertools
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import phases  # noqa: E402

PAGE = phases.ROOT / "docs/gpu.md"
# Each backend has targets, and a README that shows them.
BACKENDS = [phases.ROOT / "backend-cuda", phases.ROOT / "backend-wgpu"]
MARKS = ["<!-- targets: written by scripts/gpu_bundle/page.py --targets -->", "<!-- end of targets -->"]
NUMBER = re.compile(r"\s*([0-9.]+)")
# Between the cells of a row, in one field of figures.csv.
SEPARATOR = " | "
# Phases whose rows are ours, and those of peers that run in another process.
OURS, THEIRS = ["bench-", "networks"], ["peers", "peers-compiled", "networks-torch"]
# Ratios between figures: the pattern of one of our lines, its part in the peer's name, and the endings of peer and
# ratio.
PEERS = [
    ("conv *: statistics on / off", ": statistics on / off", "", ": with statistics / cuDNN"),
    ("network * step: with scaling", " step: with scaling", ", PyTorch AMP", " step: with scaling / PyTorch AMP"),
    ("segnet step: scaling on / off", ": scaling on / off", ", PyTorch AMP", ": half with scaling / PyTorch AMP"),
    ("segnet step: scaling on / off", ": scaling on / off", ", PyTorch f32", ": half with scaling / PyTorch f32"),
    ("segnet step: f32", ": f32", ", PyTorch f32", ": f32 / PyTorch f32"),
]


@dataclasses.dataclass(frozen=True)
class WgpuRatio:
    """Ratio between a line of wgpu's bench and one of another phase. `by` is the beginning of the kernel that computed
    it, `table` a part of the title of the other phase's table. Groups of the pattern `line` fill the names."""

    phase: str
    line: str
    by: str
    peer_phase: str
    table: str
    peer: str
    name: str


BY_MATRICES = "cooperative"
CUDA_STEP = "segnet step: scaling on / off"
WGPU_RATIOS = [
    WgpuRatio("wgpu-bench", r"gemm (\d+)³ f16: with counts / without", BY_MATRICES, "bench-products", "by mma.sync",
              "gemm {0}³: statistics on / off", "wgpu gemm {0}³ by matrices / CUDA's mma.sync"),
    WgpuRatio("wgpu-bench", r"conv 7×7 (\w+)", BY_MATRICES, "bench-products", "by mma.sync",
              "conv encoder.conv2 {0}: statistics on / off", "wgpu conv 7×7 {0} by matrices / CUDA's mma.sync"),
    WgpuRatio("wgpu-bench", r"segnet step by wgpu, .*", BY_MATRICES, "bench-segnet", "", CUDA_STEP, "wgpu segnet step by matrices / CUDA"),
    WgpuRatio("wgpu-bench-simt", r"segnet step by wgpu, .*", "simt", "bench-segnet", "", CUDA_STEP, "wgpu segnet step by tiles / CUDA"),
    WgpuRatio("wgpu-bench", r"(gemm \d+³ f16)", "", "burn", "", "{0}", "wgpu {0} / burn"),
    WgpuRatio("wgpu-bench", r"(plain step, .*)", "", "burn", "", "{0}", "wgpu plain step / burn"),
]


def rows_of(records, name):
    path = records / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def origin(row):
    """Commit and card of a row."""
    return f"{row['commit']}, {row['card'].removeprefix('NVIDIA ')}"


def targets(backends=BACKENDS):
    found = []
    for backend in backends:
        with (backend / "benches/targets.csv").open(newline="") as file:
            found += csv.DictReader(file)
    return found


def target_text(target):
    sign = "≥" if target["relation"] == "at least" else "≤"
    return f"{sign} {float(target['target']):.2f}, goal {float(target['goal']):.2f}"


def find_target(name):
    return next((one for one in targets() if fnmatch.fnmatchcase(name, one["line"].replace("[", "[[]"))), None)


def judge(target, ratio):
    """Returns whether a ratio reaches its target."""
    sign = 1 if target["relation"] == "at least" else -1
    least, goal = float(target["target"]) * sign, float(target["goal"]) * sign
    return "goal" if sign * ratio >= goal else "holds" if sign * ratio >= least else "MISSED"


def number(text):
    found = NUMBER.match(text)
    return float(found[1]) if found else None


def operations(text):
    """A figure as a number, GFLOP/s and TFLOP/s in one unit."""
    found = number(text)
    return found if found is None or "GFLOP/s" not in text else found / 1000


def markdown(columns, rows):
    line = lambda row: "| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |"
    return [line(columns), "|" + "---|" * len(columns), *map(line, rows)]


def cells(row):
    """The cells of a recorded row by column."""
    return dict(zip(row["columns"].split(SEPARATOR), row["cells"].split(SEPARATOR)))


def judged_rows(figures):
    """Lines with a ratio, and ratios to peers, each with the row from which it comes."""
    found, ours, theirs = [], {}, {}
    for row in figures:
        values = cells(row)
        name = values.get("what", "")
        if row["phase"] in THEIRS:
            figure = next(value for column, value in values.items() if column != "what")
            # If a peer has several variants or phases, the fastest is the baseline.
            if name not in theirs or (number(figure) or 0) > (number(theirs[name][0]) or 0):
                theirs[name] = (figure, row)
        elif row["phase"].startswith(tuple(OURS)) and not row["table"]:
            ours[name] = (values.get("here", ""), row)
            if values.get("ratio"):
                found.append((name, values["here"], values.get("beside it", ""), float(values["ratio"]), row))
    for pattern, ending, peer_ending, ratio_ending in PEERS:
        for name, (here, row) in ours.items():
            stem = name.removesuffix(ending)
            there, peer = theirs.get(stem + peer_ending, ("", None))
            # Two cards of one kind are compared; a card of another kind is not.
            if fnmatch.fnmatchcase(name, pattern) and peer and peer["card"] == row["card"]:
                if number(here) is not None and number(there):
                    found.append((stem + ratio_ending, here, there, number(here) / number(there), row))
    return found


def wgpu_rows(figures):
    """Lines of wgpu's bench with a ratio, and ratios to other phases on the same card, each with the row from which it
    comes. Of several lines of a peer the fastest counts."""
    found = []
    for row in figures:
        values = cells(row)
        name, here = values.get("what", ""), values.get("here", "")
        # What both phases of the bench measure is that of the kernels without matrices, with which the share is compared.
        if row["phase"] == ("wgpu-bench-simt" if "multiply-adds" in name else "wgpu-bench") and values.get("ratio"):
            found.append((f"wgpu {name}", here, values.get("beside it", ""), float(values["ratio"]), row))
        for pair in WGPU_RATIOS:
            groups = re.fullmatch(pair.line, name)
            # The kernel follows the time of a step.
            kernel = values.get("by", "").split("; ")[-1]
            if row["phase"] != pair.phase or not groups or not kernel.startswith(pair.by):
                continue
            peers = [next((value for column, value in cells(other).items() if column != "what"), "") for other in figures
                     if other["phase"] == pair.peer_phase and pair.table in other["table"] and other["card"] == row["card"]
                     and cells(other).get("what") == pair.peer.format(*groups.groups())]
            there = max(peers, key=lambda text: operations(text) or 0, default="")
            if operations(here) is not None and operations(there):
                found.append((pair.name.format(*groups.groups()), here, there, operations(here) / operations(there), row))
    return found


def target_section(figures):
    lines, table, met = ["", "## Beside the targets", ""], [], set()
    for name, here, beside, ratio, row in judged_rows(figures) + wgpu_rows(figures):
        if target := find_target(name):
            met.add(target["line"])
            table.append([name, here, beside, f"{ratio:.3f}", target_text(target), judge(target, ratio), origin(row)])
    lines += markdown(["what", "here", "beside it", "ratio", "target", "result", "commit, card"], table)
    missing = [one["line"] for one in targets() if one["line"] not in met]
    return lines + (["", f"Not measured: {'; '.join(missing)}."] if missing else [])


def limits(results, notes):
    """Returns the notes about limits of results, if they belong to the recorded commit."""
    commits = {row["phase"]: row["commit"] for row in results}
    return [f"- **{note['phase']}** ({note['commit']}): {note['note']}" for note in notes if commits.get(note["phase"]) == note["commit"]]


def figure_sections(figures, table):
    """The tables of each phase. Neighbours with the same columns form one table."""
    lines, last = [], None
    for (phase, title, columns), rows in itertools.groupby(figures, lambda row: (row["phase"], row["table"], row["columns"])):
        if phase != last:
            lines += ["", f"## {phase}", "", table[phase].answers if phase in table else "(a former phase)"]
            last = phase
        lines += ["", f"{title}:"] if title else []
        lines += ["", *markdown([*columns.split(SEPARATOR), "commit, card"], [[*row["cells"].split(SEPARATOR), origin(row)] for row in rows])]
    return lines


def render(records, table):
    """The page as text."""
    machines, results = rows_of(records, "machines"), rows_of(records, "phases")
    figures = [row for row in rows_of(records, "figures") if row["phase"] not in table or table[row["phase"]].is_published]
    lines = [
        "# Results on GPUs", "",
        "Everything that gradscale has shown on a real GPU. The page is written by `scripts/gpu_bundle/record.py` from the "
        "tables in [docs/gpu](gpu), and each row names the commit and the card that produced it. A statement about a GPU "
        "elsewhere in this project has its figure here.", "",
        "`scripts/gpu_bundle.py` builds what such a run needs; it can be rehearsed without a GPU "
        "([how](../backend-cuda/README.md#on-a-gpu)).", "",
        "## Machines", "",
    ]
    if all(row["card"] == "no GPU" for row in machines):
        lines += ["**No GPU: no phase found what it needs.**", ""]
    if any(row["card"] == "emulated" for row in machines):
        lines += ["**An emulated device: its times mean nothing and are not compared with targets.**", ""]
    lines += markdown(["commit", "date", "card", "machine"], [[row[key] for key in ("commit", "date", "card", "machine")] for row in machines])
    lines += ["", "## Phases", ""]
    # A former phase that was renamed or removed has no question any more.
    question = lambda name: table[name].answers if name in table else "(a former phase)"
    lines += markdown(
        ["phase", "question", "result", "seconds", "commit, card"],
        [[row["phase"], question(row["phase"]), row["result"], row["seconds"], origin(row)] for row in results],
    )
    done = {row["phase"] for row in results}
    if missing := [name for name in table if name not in done]:
        lines += ["", f"Never run on a GPU: {', '.join(missing)}."]
    if hidden := [phase.name for phase in table.values() if not phase.is_published]:
        lines += ["", f"Recorded and not shown here, until the work on their speed is done: {', '.join(hidden)}."]
    if notes := limits(results, rows_of(records, "notes")):
        lines += ["", "## What limits these results", "", *notes]
    real = [row for row in figures if row["card"] != "emulated"]
    if real:
        lines += target_section(real)
    lines += figure_sections(figures, table)
    return "\n".join(lines) + "\n"


def write_targets():
    for backend in BACKENDS:
        readme = backend / "README.md"
        (before, rest), end = readme.read_text().split(MARKS[0]), MARKS[1]
        rows = [[one["line"], one["beside"], target_text(one)] for one in targets([backend])]
        table = "\n".join(markdown(["what", "beside", "target"], rows))
        readme.write_text(f"{before}{MARKS[0]}\n{table}\n{end}{rest.split(end)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", action="store_true", help="the tables of targets instead of the page")
    if parser.parse_args().targets:
        return write_targets()
    PAGE.write_text(render(phases.ROOT / "docs/gpu", phases.load()))


if __name__ == "__main__":
    main()
