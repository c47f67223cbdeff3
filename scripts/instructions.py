#!/usr/bin/env python3
"""Instructions of the CPU backend's kernels on emulated processors, for docs/performance.md.

usage: scripts/instructions.py

An emulator has no meaningful times, but it can trace every instruction. The cost of an operator is the difference
between a process that runs it three times and one that runs it once. Needs qemu-user, a linker for AArch64 and its
standard library, which backend-cpu/emulated.sh --install installs.
"""
import argparse
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys

import performance_page as page

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARM, X86 = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"
# Instruction sets, the targets of their programs, and the emulators.
SETS = {"NEON": (ARM, ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]), "AVX2": (X86, ["qemu-x86_64", "-cpu", "Haswell"]),
        "portable": (X86, ["qemu-x86_64", "-cpu", "Haswell"])}
LINKER = "aarch64-linux-gnu-gcc"
MARKS = "<!-- instructions: written by scripts/instructions.py -->", "<!-- end of instructions -->"


def program(target):
    """The example that runs one operator."""
    command = ["cargo", "build", "--quiet", "--release", "-p", "gradscale-cpu", "--example", "operators", "--target", target]
    linker = {"CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": LINKER}
    if subprocess.run(command, cwd=ROOT, env=os.environ | linker).returncode:
        sys.exit(f"cargo builds nothing for {target}: see backend-cpu/emulated.sh --install")
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target / "release/examples/operators"


def executed(command):
    """Returns how many instructions a process executes: the emulator prints one line for each."""
    emulator, *rest = command
    # Name of the option since version 8.1, and before.
    known = subprocess.run([emulator, "--help"], stdout=subprocess.PIPE, text=True).stdout
    one_by_one = "-one-insn-per-tb" if "one-insn-per-tb" in known else "-singlestep"
    with subprocess.Popen([emulator, one_by_one, "-d", "exec,nochain", *rest], stderr=subprocess.PIPE) as process:
        count = sum(block.count(b"Trace ") for block in blocks(process.stderr))
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return count


def blocks(stream, size=1 << 20):
    """Yields the stream in blocks that end at the ends of lines."""
    rest = b""
    while block := stream.read(size):
        whole, end, tail = (rest + block).rpartition(b"\n")
        yield whole + end
        rest = tail
    yield rest


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    wanted = {emulator for _, (emulator, *_) in SETS.values()} | {LINKER}
    if missing := sorted(name for name in wanted if not shutil.which(name)):
        sys.exit(f"not here: {', '.join(missing)}: see backend-cpu/emulated.sh --install")
    programs = {target: program(target) for target, _ in SETS.values()}
    operators = [line.split("\t") for line in subprocess.check_output(programs[X86], text=True).splitlines()]
    lines = ["| operator | " + " | ".join(SETS) + " | of |", "|---|" + "---|" * (len(SETS) + 1)]
    for name, amount, of in operators:
        cells = []
        for isa, (target, emulator) in SETS.items():
            once, thrice = (executed([*emulator, programs[target], isa, name, times]) for times in "13")
            cells.append(f"{(thrice - once) / 2 / int(amount):.3g}")
            print(f"{name}, {isa}: {cells[-1]} per {of}", flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} | {of} |")
    version = re.search(r"version (\S+)", subprocess.check_output(["qemu-aarch64", "--version"], text=True)).group(1)
    said = f"<sub>{datetime.date.today().isoformat()}, commit {page.commit()}, qemu {version.rstrip(')')}.</sub>"
    inside = "\n\n".join(["", "\n".join(lines), said, ""])
    page.PAGE.write_text(page.fill_section(page.PAGE.read_text(), MARKS, inside))


if __name__ == "__main__":
    main()
