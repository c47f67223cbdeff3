#!/usr/bin/env python3
"""What a visit to a GPU brought back, as docs/gpu.md: scripts/gpu_box/read.py FOLDER/out [--to FILE]"""
import argparse
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What a phase shows where it passes.
SHOWS = {
    "environment": "driver, machine, devices",
    "suite-without-warpgroups": "the conformance suite, by mma.sync",
    "prove": "each kernel that only this architecture has, in a process of its own",
    "tiles": "every tile of every product, bit for bit",
    "suite": "the conformance suite with all kernels",
    "segnet": "the engine: recorded as eager, invariant under a shift, beside the CPU",
    "train": "one training by the program, to its end",
    "bench-products": "products and convolutions",
    "bench-elements": "casts, norms, functions, updates",
    "bench-segnet": "a training step",
    "peers": "cuDNN and PyTorch",
    "memcheck": "no access outside memory (compute-sanitizer)",
    "racecheck": "no race in shared memory (compute-sanitizer)",
    "wgpu-suite": "the conformance suite through Vulkan",
    "wgpu-tiles": "every tile through Vulkan",
    "wgpu-bench": "figures through Vulkan",
}
# Words by which a phase says that what it needs is not there.
LACKS = ["no device", "a device is required", "no CUDA", "is not installed", "no adapter", "no peers", "no compute-sanitizer", "SKIPPED"]


def last(text, words):
    """The last line that has one of some words, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if any(word in line for word in words)]
    return (found or lines or [""])[-1]


def verdict(status, text):
    """What came of a phase, in words."""
    lacking = [line.strip() for line in text.splitlines() if any(word in line for word in LACKS)]
    if lacking:
        return f"not here: {lacking[0]}"
    if status == 124:
        return f"hangs, or took too long: {last(text, ())}"
    if status != 0:
        return f"FAILED ({status}): {last(text, ['FAILED', 'failed', 'panicked', 'differ', 'not right'])}"
    return "passed"


def tables(text):
    """Markdown tables in what a phase has said."""
    found, now = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            now.append(line)
        elif now:
            found.append("\n".join(now))
            now = []
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs/gpu.md")
    asked = parser.parse_args()
    phases = asked.out / "phases.txt"
    if not phases.exists():
        parser.error(f"{phases} is not there: has run.sh run?")
    ran = [(name, int(status), int(seconds)) for name, status, seconds in map(str.split, phases.read_text().splitlines())]
    said = {name: (asked.out / f"{name}.txt").read_text(errors="replace") for name, _, _ in ran}
    lines = ["# On a GPU", "", "Written by `scripts/gpu_box/read.py` from what the box brought back.", "", "```"]
    # What is indented is what devices do with small numbers, and long.
    lines += [line for line in said.get("environment", "").splitlines() if line.strip() and not line.startswith(" ")]
    lines += ["```", "", "| phase | what it shows | seconds | came of it |", "|---|---|---|---|"]
    for name, status, seconds in ran:
        lines.append(f"| {name} | {SHOWS.get(name, '')} | {seconds} | {verdict(status, said[name]).replace('|', '/')} |")
    left_out = [name for name in SHOWS if name not in said]
    if left_out:
        lines += ["", f"Not run: {', '.join(left_out)}."]
    for name, _, _ in ran:
        for table in tables(said[name]):
            lines += ["", f"## {SHOWS.get(name, name).capitalize()}", "", table]
    asked.to.write_text("\n".join(lines) + "\n")
    print(f"{asked.to}: {len(ran)} phases")


if __name__ == "__main__":
    main()
