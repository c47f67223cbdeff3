#!/usr/bin/env python3
"""What a visit to a GPU brought back, as docs/gpu.md: scripts/gpu_box/read.py FOLDER/out [--earlier OUT ...] [--to FILE]

With --earlier: phases that this visit has not run are those of an earlier one, and the page says of which commit.

With --targets: writes the bench's targets into backend-cuda/README.md.
"""
import argparse
import csv
import fnmatch
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGETS = ROOT / "backend-cuda/benches/targets.csv"
README = ROOT / "backend-cuda/README.md"
MARKS = ["<!-- targets: written by scripts/gpu_box/read.py --targets -->", "<!-- end of targets -->"]
# What a phase shows where it passes.
SHOWS = {
    "environment": "driver, machine, devices",
    "prove": "each kernel that only this architecture has, in a process of its own",
    "tiles": "every tile of every product, bit for bit",
    "suite-without-warpgroups": "the conformance suite, by mma.sync",
    "suite": "the conformance suite with all kernels",
    "bench-products": "products and convolutions",
    "bench-segnet": "a training step",
    "peers": "cuDNN and PyTorch",
    "bench-elements": "casts, norms, functions, updates",
    "segnet": "the engine: recorded as eager, invariant under a shift, beside the CPU",
    "train": "one training by the program, to its end",
    "nccl": "gradients from GPU to GPU, bit for bit, with as many ranks as there are GPUs",
    "tasks": "a network of each task beside the CPU",
    "memcheck": "no access outside memory (compute-sanitizer)",
    "racecheck": "no race in shared memory (compute-sanitizer)",
    "wgpu-suite": "the conformance suite through Vulkan",
    "wgpu-tiles": "every tile through Vulkan",
    "wgpu-bench": "figures through Vulkan",
}
# Words by which a phase says that what it needs is not there.
LACKS = [
    "no device",
    "a device is required",
    "no CUDA device",
    "is not installed",
    "no adapter",
    "no peers",
    "sees no GPU",
    "no compute-sanitizer",
    "SKIPPED",
]
# A figure: a number, and its unit.
FIGURE = re.compile(r"\s*([0-9.]+) (TFLOP/s|GB/s|images/s|min)\s*")


def last(text, words):
    """The last line that has one of some words, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if any(word in line for word in words)]
    return (found or lines or [""])[-1]


def reason(text):
    """Why a phase failed: what the last panic said, which stands below its place, or else the last line that says so."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [below for line, below in zip(lines, lines[1:]) if " panicked at " in line]
    return said[-1] if said else last(text, ["FAILED", "failed", "differ", "not right"])


def verdict(name, status, text):
    """What came of a phase, in words."""
    # The first phase names everything that is not there; only a CUDA device must be.
    words = ["cuda: "] if name == "environment" else LACKS
    lacking = [line.strip() for line in text.splitlines() if any(word in line for word in words)]
    if lacking:
        return f"not here: {lacking[0]}"
    if status == 124 or status == 137:
        return f"hangs, or took too long: {last(text, ())}"
    if status != 0:
        return f"FAILED ({status}): {reason(text)}"
    return "passed"


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text):
    """Markdown tables in what a phase has said, as rows of cells; the second row is left out."""
    found, now = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            now.append(cells(line))
        elif now:
            found.append([now[0], *now[2:]])
            now = []
    return found


def unfinished(text):
    """The lines of a bench that was ended before its table, as a table."""
    rows = []
    for line in text.splitlines():
        before, *rest = line.split("; ")
        if len(rest) < 2 or ": " not in before:
            continue
        # A name may have a colon too.
        name, value = before.rsplit(": ", 1)
        if FIGURE.match(value):
            beside, ratio, *model = rest
            rows.append([name, value, beside, ratio.strip("; "), "", "; ".join(model)])
    return [["what", "here", "beside it", "ratio", "target", "model"], *rows] if rows else None


def targets():
    """Rows of the table of targets."""
    with TARGETS.open(newline="") as file:
        return list(csv.DictReader(file))


def said_of(target):
    """A target as tables say it."""
    sign = "≥" if target["relation"] == "at least" else "≤"
    return f"{sign} {float(target['target']):.2f}, goal {float(target['goal']):.2f}"


def judged(name, ratio):
    """The target of a line and what its ratio comes to, if it has one."""
    for target in targets():
        if fnmatch.fnmatchcase(name, target["line"].replace("[", "[[]")):
            if ratio is None:
                return said_of(target), "not measured"
            sign = 1 if target["relation"] == "at least" else -1
            least, goal = float(target["target"]) * sign, float(target["goal"]) * sign
            came = "goal" if sign * ratio >= goal else "holds" if sign * ratio >= least else "MISSED"
            return said_of(target), came
    return "", ""


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def figure(cell):
    found = FIGURE.match(cell)
    return float(found[1]) if found else None


def measured(said):
    """Rows of all tables that have ratios, and the figures of others by name."""
    rows, figures = [], {}
    for phase in said:
        if not (phase.startswith("bench-") or phase == "peers"):
            continue
        found = tables(said[phase])
        part = unfinished(said[phase])
        if phase.startswith("bench-") and not found and part:
            found = [part]
        for number_of, table in enumerate(found):
            for row in table[1:]:
                if phase == "peers":
                    figures[row[0]] = row[1]
                # A second table of a bench is of products without warpgroups.
                elif number_of == 0 and len(row) >= 4:
                    rows.append((row + ["", ""])[:6])
    return rows, figures


def beside_peers(rows, figures):
    """Ratios to what peers have measured by themselves."""
    here = {row[0]: row[1] for row in rows}
    found = []

    def add(name, mine, theirs):
        own, other = figure(here.get(mine, "")), figure(figures.get(theirs, ""))
        if own is not None and other:
            found.append([name, here[mine], figures[theirs], f"{own / other:.3f}", "", ""])

    for name in here:
        if name.startswith("conv ") and name.endswith(": statistics on / off"):
            conv = name.removesuffix(": statistics on / off")
            add(f"{conv}: with statistics / cuDNN", name, conv)
    step = "segnet step: scaling on / off"
    add("segnet step: half with scaling / PyTorch AMP", step, "segnet step, PyTorch AMP with GradScaler")
    add("segnet step: half with scaling / PyTorch f32", step, "segnet step, PyTorch f32")
    return found


def markdown(table):
    head, *rows = table
    line = lambda row: "| " + " | ".join(cell.replace("|", "/") for cell in row) + " |"
    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def visit(out):
    """The phases of a visit, each with its exit status and seconds, and what they said."""
    ran = []
    for line in (out / "phases.txt").read_text().splitlines():
        fields = line.split()
        # Half a line is that of a machine that went away.
        if len(fields) == 3 and all(field.lstrip("-").isdigit() for field in fields[1:]):
            ran.append((fields[0], int(fields[1]), int(fields[2])))
    said = {}
    for name, _, _ in ran:
        file = out / f"{name}.txt"
        said[name] = file.read_text(errors="replace") if file.exists() else "FAILED: its file did not come back"
    return ran, said


def page(out, earlier=()):
    """The page of a visit, and of what earlier ones have that it lacks."""
    ran, said = visit(out)
    of = {}
    for before in earlier:
        ran_before, said_before = visit(before)
        commit = said_before.get("environment", "").strip().split("\n")[0] or "an unknown commit"
        for phase in ran_before:
            if phase[0] not in said:
                ran.append(phase)
                said[phase[0]], of[phase[0]] = said_before[phase[0]], f" (of {commit})"
    lines = ["# On a GPU", "", "Written by `scripts/gpu_box/read.py` from what the box brought back.", "", "```"]
    # What is indented is what devices do with small numbers, and long.
    lines += [line for line in said.get("environment", "").splitlines() if line.strip() and not line.startswith(" ")]
    lines += ["```", ""]
    here = [name for name, status, _ in ran if not verdict(name, status, said[name]).startswith("not here")]
    if not [name for name in here if name != "environment"]:
        lines += ["**No device: no phase found what it needs.**", ""]
    phases = [["phase", "what it shows", "seconds", "came of it"]]
    phases += [[name + of.get(name, ""), SHOWS.get(name, ""), str(seconds), verdict(name, status, said[name])] for name, status, seconds in ran]
    lines += markdown(phases)
    left_out = [name for name in SHOWS if name not in said]
    if left_out:
        lines += ["", f"Not run: {', '.join(left_out)}."]
    rows, figures = measured(said)
    rows += beside_peers(rows, figures)
    if any("emulated, sm_" in text for text in said.values()):
        lines += ["", "**An emulated device: times mean nothing and are not held against targets.**"]
    elif rows:
        lines += ["", "## Against the targets", ""]
        table, met = [["what", "here", "beside it", "ratio", "target", "came of it"]], set()
        for name, value, beside, ratio, _, _ in rows:
            target, came = judged(name, number(ratio))
            if target:
                table.append([name, value, beside, ratio, target, came])
                met.update(one["line"] for one in targets() if fnmatch.fnmatchcase(name, one["line"]))
        lines += markdown(table)
        missing = [one["line"] for one in targets() if one["line"] not in met]
        if missing:
            lines += ["", f"Not measured: {'; '.join(missing)}."]
        model = [[row[0], row[1], row[5]] for row in rows if row[5]]
        if model:
            lines += ["", "## Beside the model", "", "What a line should take by the maker's figures (`model.rs` of the bench), which part should be busy for which share of that, and what it took.", ""]
            lines += markdown([["what", "here", "model; measured"], *model])
    for name, _, _ in ran:
        found = tables(said[name])
        if name == "wgpu-bench" and not verdict(name, 0, said[name]).startswith("not here"):
            lines += ["", f"## {SHOWS[name].capitalize()}", "", "```", said[name].strip(), "```"]
        for number_of, table in enumerate(found):
            # A second table of products is of those without warpgroups.
            heading = SHOWS.get(name, name) + (", by mma.sync" if number_of else "")
            lines += ["", f"## {heading[0].upper()}{heading[1:]}", "", *markdown(table)]
    return "\n".join(lines) + "\n", len(ran)


def write_targets():
    table = [["what", "beside", "target"]] + [[one["line"], one["beside"], said_of(one)] for one in targets()]
    text = README.read_text()
    (before, rest), end = text.split(MARKS[0]), MARKS[1]
    README.write_text(before + MARKS[0] + "\n" + "\n".join(markdown(table)) + "\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--earlier", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs/gpu.md")
    parser.add_argument("--targets", action="store_true")
    asked = parser.parse_args()
    if asked.targets:
        return write_targets()
    if asked.out is None or not (asked.out / "phases.txt").exists():
        parser.error(f"{asked.out or 'FOLDER/out'}/phases.txt is not there: has run.sh run?")
    if missing := [str(out) for out in asked.earlier if not (out / "phases.txt").exists()]:
        parser.error(f"{missing[0]}/phases.txt is not there")
    text, count = page(asked.out, asked.earlier)
    asked.to.write_text(text)
    print(f"{asked.to}: {count} phases")


if __name__ == "__main__":
    main()
