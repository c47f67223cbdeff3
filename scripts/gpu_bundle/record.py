#!/usr/bin/env python3
"""Adds the results of a run on a GPU to the record in docs/gpu and writes docs/gpu.md from it.

usage: scripts/gpu_bundle/record.py FOLDER/out [--records DIRECTORY] [--page FILE]

The record has four tables. `phases.csv`: the last result of each phase. `figures.csv`: each row of a table that a phase
printed. `machines.csv`: where they come from. `notes.csv`, written by hand: what limits
the figures of a phase that a commit produced. Each row names the commit, the date and the card that produced it. A phase
that ended replaces all of its rows; a phase that was cut off replaces only the rows that it printed, and so does a phase of
trainings, since several visits divide their seeds.

Results of an emulated device are refused for docs/gpu, since their times mean nothing, and so are phases that were only
rehearsed, for example on a Vulkan driver of the CPU. --records takes them elsewhere.
"""
import argparse
import csv
import io
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import page  # noqa: E402
import phases  # noqa: E402

RECORDS = phases.ROOT / "docs/gpu"
PHASE_COLUMNS = ["phase", "result", "seconds", "commit", "date", "card", "digest"]
FIGURE_COLUMNS = ["phase", "table", "columns", "cells", "commit", "date", "card"]
MACHINE_COLUMNS = ["commit", "date", "card", "machine"]
# Words by which a program reports that the machine lacks something.
MISSING = [
    "not here:", "no device", "a device is required", "no CUDA device", "is not installed", "no adapter", "no peers",
    "sees no GPU",
]
# The word for a part that was omitted. It explains a phase that passed, and no failure of another part.
OMITTED = "SKIPPED"
# Phases whose rows are trainings of their own: visits divide the seeds, so a phase that ended replaces only what it printed.
TRAININGS = {"natural-image", "natural-speech", "natural-lock", "table3-small", "table3-full"}
# Exit status of a phase whose trainings go on in the next command.
RESUMED = 75
# Beginning of a line that `run.sh --rehearse`, or a program on a driver of the CPU, prints: sizes are small there.
REHEARSAL = "rehearsal:"
# A line of a bench: a name, then figures that are separated by semicolons. The first one has a unit.
FIGURE = re.compile(r"\s*([0-9.]+) (TFLOP/s|GFLOP/s|GB/s|images/s|tokens/s|samples/s|frames/s|ms|min)\s*")
BENCH_COLUMNS = ["what", "here", "beside it", "ratio", "model"]
# Metrics of ncu that show what bounds a kernel.
NCU_METRICS = [
    "Duration", "Compute (SM) Throughput", "Memory Throughput", "DRAM Throughput", "L1/TEX Cache Throughput",
    "L2 Cache Throughput", "Achieved Occupancy", "Registers Per Thread", "Dynamic Shared Memory Per Block",
]


def last_line(text, needles=()):
    """The last line with one of some words, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if any(needle in line for needle in needles)]
    return (found or lines or [""])[-1]


def failure(text):
    """Reason why a phase failed: the message of the last panic, which follows its location, or the last line with an
    error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    panics = [below for line, below in zip(lines, lines[1:]) if " panicked at " in line]
    return panics[-1] if panics else last_line(text, ["FAILED", "failed", "differ", "not right"])


def result(name, status, text):
    """The result of a phase in words."""
    # The first phase lists everything that does not exist; only a CUDA device must.
    needles = ["cuda: "] if name == "environment" else MISSING if status else [*MISSING, OMITTED]
    missing = [line.strip() for line in text.splitlines() if any(needle in line for needle in needles)]
    if missing and status == 0 or missing and name != "environment":
        return f"not here: {missing[0].removeprefix('not here: ')}"
    if status == RESUMED:
        return f"not finished: {last_line(text, ['to be resumed'])}"
    if status in (124, 137):
        return f"time limit: {last_line(text)}"
    if status != 0:
        return f"FAILED ({status}): {failure(text)}"
    return "rehearsed" if is_rehearsal(text) else "passed"


def is_rehearsal(text):
    return any(line.startswith(REHEARSAL) for line in text.splitlines())


def split_row(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def is_rule(row):
    """Returns whether a row of Markdown is the separator after a table's head."""
    return all(set(cell) <= set(":-") and cell for cell in row)


def markdown_tables(text):
    """The Markdown tables of an output: title, columns, rows. A title is the line above a table if it ends with a colon.

    Rows that other lines separate from their table continue it. Of rows with one name the last counts.
    """
    found, piece, title = [], [], ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            piece.append(split_row(line))
            continue
        if piece:
            if len(piece) > 1 and is_rule(piece[1]):
                found.append((title, piece[0], {}))
                piece = piece[2:]
            elif not found or len(piece[0]) != len(found[-1][1]):
                found.append((title, piece[0], {}))
                piece = piece[1:]
            _, columns, rows = found[-1]
            rows.update((row[0], (row + [""] * len(columns))[: len(columns)]) for row in piece if row[0])
            piece, title = [], ""
        if line.strip():
            title = line.strip().removesuffix(":") if line.strip().endswith(":") else ""
    return [(title, columns, list(rows.values())) for title, columns, rows in found]


def bench_lines(text):
    """The lines that a bench printed before it was cut off, as a table. Of lines with one name the first counts."""
    rows = {}
    for line in text.splitlines():
        before, *rest = line.split("; ")
        if len(rest) < 2 or ": " not in before:
            continue
        # A name may contain a colon.
        name, value = before.rsplit(": ", 1)
        if FIGURE.match(value):
            beside, ratio, *model = rest
            rows.setdefault(name, [name, value, beside, ratio.strip("; "), "; ".join(model)])
    return [("", BENCH_COLUMNS, list(rows.values()))] if rows else []


def ncu_table(text):
    """One row for each metric of each kernel, from ncu's CSV."""
    rows = []
    lines = [line for line in text.splitlines() if line.startswith('"')]
    for row in csv.reader(io.StringIO("\n".join(lines))):
        if "Metric Name" in row:
            columns = row
        elif lines and len(row) == len(columns):
            fields = dict(zip(columns, row))
            if fields["Metric Name"] in NCU_METRICS:
                value = f"{fields['Metric Value']} {fields['Metric Unit']}"
                rows.append([f"{fields['Kernel Name'].split('(')[0]}: {fields['Metric Name']}", value])
    return [("", ["what", "here"], rows)] if rows else []


def figures(name, text):
    """The tables of a phase: title, columns, rows. The column of targets is left out, since targets can change."""
    found = markdown_tables(text) or bench_lines(text)
    if name == "ncu":
        found = ncu_table(text)
    tables = []
    for title, columns, rows in found:
        kept = [at for at, column in enumerate(columns) if column != "target"]
        tables.append((title, [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]))
    return tables


def read_output(out):
    """The phases of an output folder: name, exit status, seconds, text."""
    found = []
    for line in (out / "phases.txt").read_text().splitlines():
        fields = line.split()
        # A machine that disappeared leaves half a line.
        if len(fields) == 3 and all(field.lstrip("-").isdigit() for field in fields[1:]):
            file = out / f"{fields[0]}.txt"
            text = file.read_text(errors="replace") if file.exists() else "FAILED: its file did not come back"
            found.append((fields[0], int(fields[1]), int(fields[2]), text))
    return found


def read_machine(text):
    """Commit, date, card and the whole description, from the output of the phase `environment`."""
    # Indented lines describe devices, but for those with which the line of a device continues (`gradscale devices`).
    text = re.sub(r"\n {4}(?=\S)", " ", text)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", REHEARSAL))]
    commit, date = (lines + ["unknown", "unknown"])[:2]
    smi = [line for line in lines[2:] if line.count(", ") == 4 and "MiB" in line]
    emulated = any("emulated" in line for line in lines)
    card = "emulated" if emulated else smi[0].split(", ")[0] if smi else "no GPU"
    return commit, date, card, "; ".join(lines[2:])


def load(records, name, columns):
    path = records / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{column: row[column] for column in columns} for row in csv.DictReader(file)]


def store(records, name, columns, rows):
    records.mkdir(parents=True, exist_ok=True)
    with (records / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def in_order(rows, table):
    """Rows in the order of the table of phases; those of former phases last."""
    order = {name: at for at, name in enumerate(table)}
    return sorted(rows, key=lambda row: order.get(row["phase"], len(order)))


def merge(records, out, table):
    """Adds the results of an output folder to the record; returns how many phases and rows it has replaced."""
    ran = read_output(out)
    texts = {name: text for name, _, _, text in ran}
    if "environment" not in texts:
        sys.exit(f"{out}: the phase environment has not run, so commit and card are not known")
    commit, date, card, machine = read_machine(texts["environment"])
    if card == "emulated" and records == RECORDS:
        sys.exit("an emulated device: not recorded; --records DIRECTORY takes the results elsewhere")
    if records == RECORDS:
        rehearsed = [name for name, _, _, text in ran if is_rehearsal(text)]
        ran = [row for row in ran if row[0] not in rehearsed]
        if rehearsed:
            print(f"rehearsed, and so not recorded: {', '.join(rehearsed)}", file=sys.stderr)
        if not ran:
            sys.exit("a rehearsal: not recorded; --records DIRECTORY takes the results elsewhere")
    origin = {"commit": commit, "date": date, "card": card}
    old_phases, old_figures = load(records, "phases", PHASE_COLUMNS), load(records, "figures", FIGURE_COLUMNS)
    machines = load(records, "machines", MACHINE_COLUMNS)
    new_phases, new_figures, ended = [], [], set()
    for name, status, seconds, text in ran:
        verdict = result(name, status, text)
        is_missing = verdict.startswith("not here")
        # A phase that lacks a part has measured the others, and keeps the rows of that part.
        if status == 0 and not is_missing and name not in TRAININGS:
            ended.add(name)
        for title, columns, rows in figures(name, text):
            for row in rows:
                cells = {"columns": page.SEPARATOR.join(columns), "cells": page.SEPARATOR.join(row)}
                new_figures.append({"phase": name, "table": title, **cells, **origin})
        # A phase that this machine cannot run keeps its earlier result from another machine.
        if is_missing and any(row["phase"] == name for row in old_phases):
            continue
        digest = phases.digest(table[name], commit) if name in table else None
        new_phases.append({"phase": name, "result": verdict, "seconds": seconds, "digest": digest or "", **origin})
    key = lambda row: (row["phase"], row["table"], row["cells"].split(page.SEPARATOR)[0])
    replaced, names = {key(row) for row in new_figures}, {row["phase"] for row in new_phases}
    kept = [row for row in old_figures if row["phase"] not in ended and key(row) not in replaced]
    store(records, "phases", PHASE_COLUMNS, in_order([row for row in old_phases if row["phase"] not in names] + new_phases, table))
    store(records, "figures", FIGURE_COLUMNS, in_order(kept + new_figures, table))
    machines = [row for row in machines if (row["commit"], row["card"]) != (commit, card)]
    used = {(row["commit"], row["card"]) for row in kept + new_phases + old_phases}
    machines = [row for row in machines if (row["commit"], row["card"]) in used]
    store(records, "machines", MACHINE_COLUMNS, [*machines, {**origin, "machine": machine}])
    return len(new_phases), len(new_figures)


def measured_at_head(table, records=RECORDS):
    """Phases that passed with today's files."""
    passed = {row["phase"]: row["digest"] for row in load(records, "phases", PHASE_COLUMNS) if row["result"] == "passed"}
    return [name for name, phase in table.items() if passed.get(name) and passed[name] == phases.digest(phase)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--records", type=pathlib.Path, default=RECORDS)
    parser.add_argument("--page", type=pathlib.Path, default=page.PAGE)
    options = parser.parse_args()
    if not (options.out / "phases.txt").exists():
        parser.error(f"{options.out}/phases.txt does not exist: has run.sh run?")
    table = phases.load()
    counts = merge(options.records, options.out, table)
    options.page.write_text(page.render(options.records, table))
    print(f"{options.records}: {counts[0]} phases, {counts[1]} rows; {options.page}")


if __name__ == "__main__":
    main()
