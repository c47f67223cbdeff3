#!/usr/bin/env python3
"""Writes docs/gpu.md from the record in docs/gpu, or the table of targets in backend-cuda/README.md.

usage: scripts/gpu_bundle/page.py [--targets]
"""
import argparse
import csv
import fnmatch
import itertools
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import phases  # noqa: E402

PAGE = phases.ROOT / "docs/gpu.md"
TARGETS = phases.ROOT / "backend-cuda/benches/targets.csv"
README = phases.ROOT / "backend-cuda/README.md"
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


def targets():
    with TARGETS.open(newline="") as file:
        return list(csv.DictReader(file))


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


def target_section(figures):
    lines, table, met = ["", "## Beside the targets", ""], [], set()
    for name, here, beside, ratio, row in judged_rows(figures):
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
    text = README.read_text()
    (before, rest), end = text.split(MARKS[0]), MARKS[1]
    rows = [[one["line"], one["beside"], target_text(one)] for one in targets()]
    README.write_text(before + MARKS[0] + "\n" + "\n".join(markdown(["what", "beside", "target"], rows)) + "\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", action="store_true", help="the table of targets instead of the page")
    if parser.parse_args().targets:
        return write_targets()
    PAGE.write_text(render(phases.ROOT / "docs/gpu", phases.load()))


if __name__ == "__main__":
    main()
