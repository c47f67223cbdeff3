#!/usr/bin/env python3
"""Training steps of gradscale beside burn and candle, on the CPU: a section of docs/performance.md, a sentence of README.md.

usage: scripts/rust_peers.py --folder DIRECTORY [--parts PART ...] [--seconds N] [--built] [--again] [--page]

DIRECTORY is outside this repository. The programs of scripts/rust_peers are copied there, and cargo fetches and builds
what they need in it (about 1.5 GB). All of them train the same networks from the same weights on the same batches. Their
losses are compared before anything is measured, and the script ends if they differ.

Parts, each a file in DIRECTORY; an existing part is not run again, unless --again:

  builds  a release build of each program from nothing, after its downloads: time, number of crates; some minutes
  steps   steps in turns, with one thread and with all processors, and the peak memory of each process; at most N seconds
          for each network and number of threads, four minutes in all by default

--built takes steps with the programs that DIRECTORY has, without cargo. --page only writes the pages from existing results.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import rust_peers_page as page
from performance import CORES, placed, resident, taken
from turns import ROOT, Turns

PROGRAMS = ROOT / "scripts/rust_peers"
# All three compile for this processor, since candle has kernels for AVX that are chosen by the compiler's target.
FLAGS = "-C target-cpu=native"
# Steps whose losses are compared: each of the four batches three times, so that the loss shows the updates.
COMPARED_STEPS = 12


def run_cargo(folder, name, *arguments):
    """Runs cargo for a program, and returns its output with the resources that it used. A failure ends the script with
    cargo's first error."""
    command = ["cargo", *arguments]
    log = folder / name / "cargo.log"
    start = time.monotonic()
    try:
        environment = os.environ | {"RUSTFLAGS": FLAGS, "CARGO_TARGET_DIR": "target"}
        with log.open("w") as errors, subprocess.Popen(command, cwd=folder / name, env=environment, stdout=subprocess.PIPE,
                                                       stderr=errors, text=True) as process:
            output = process.stdout.read()
            # Processor time includes that of the compilers, which cargo has waited for.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    except FileNotFoundError:
        sys.exit("cargo is not installed: see https://rustup.rs")
    if process.returncode:
        said = [line for line in log.read_text().splitlines() if line.startswith("error")]
        sys.exit(f"{' '.join(command)} failed for {name}: {said[0] if said else 'no message'}; all of it: {log}")
    return output, {"wall": time.monotonic() - start, "processor": used.ru_utime + used.ru_stime}


def copy_programs(folder):
    """Copies the programs out of the repository, so that no workspace includes them. Build outputs there stay."""
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    manifest = folder / "gradscale/Cargo.toml"
    manifest.write_text(manifest.read_text().replace("../../..", ROOT.as_posix()))


def count_crates(tree):
    """Number of different crates beneath a program, from `cargo tree --prefix none`."""
    return len({tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}) - 1


def read_version(tree, crate):
    """Version of a crate in the output of `cargo tree`."""
    return re.search(rf"^{crate} v(\S+)", tree, re.M).group(1)


def builds(folder, _):
    """Builds each program from nothing."""
    for name, crate in page.CRATES.items():
        run_cargo(folder, name, "fetch")
        shutil.rmtree(folder / name / "target", ignore_errors=True)
        _, used = run_cargo(folder, name, "build", "--release", "--quiet")
        tree, _ = run_cargo(folder, name, "tree", "--edges", "normal,build", "--prefix", "none")
        yield {"name": name, "version": read_version(tree, crate), "crates": count_crates(tree), **used}


def find_program(folder, name):
    return folder / name / "target/release" / f"peer-{name}"


def start_program(folder, side, network, threads):
    """A framework's program, ready to take steps."""
    name, method = page.SIDES[side]
    sizes = ",".join(map(str, page.NETWORKS[network]))
    turns = Turns([find_program(folder, name), network, sizes, threads, method],
                  env=os.environ | {"RAYON_NUM_THREADS": str(threads)})
    turns.parameters = (turns.read() or turns.ended())["parameters"]
    return turns


def measure_steps(folder, network, threads, seconds):
    """A row of a network: first the losses of some steps, then times turn by turn, then the peak memory."""
    with placed(threads), contextlib.ExitStack() as stack:
        running = {side: stack.enter_context(start_program(folder, side, network, threads)) for side in page.SIDES}
        losses = {side: [turns.ask("step")["loss"] for _ in range(COMPARED_STEPS)] for side, turns in running.items()}
        found = {"network": network, "threads": threads, "losses": losses,
                 "parameters": {side: turns.parameters for side, turns in running.items()}}
        if wrong := page.disagreement(found):
            sys.exit(wrong)
        sides = {side: (lambda turns=turns: turns.ask("step")["seconds"]) for side, turns in running.items()}
        found["seconds"] = taken(sides, 100, seconds)
        found["peak"] = {side: resident(turns.process, "VmHWM") for side, turns in running.items()}
    return found


def steps(folder, asked):
    for name in page.CRATES:
        if not asked.built:
            run_cargo(folder, name, "build", "--release", "--quiet")
        elif not find_program(folder, name).exists():
            sys.exit(f"{find_program(folder, name)} does not exist: leave --built out")
    for network in page.NETWORKS:
        for threads in sorted({1, CORES}):
            yield measure_steps(folder, network, threads, asked.seconds)


PARTS = {"builds": builds, "steps": steps}


def record_part(part, folder, asked):
    """Runs a part, and writes its rows with their origin."""
    version = run_cargo(folder, "gradscale", "--version")[0].split()[1]
    said = {"commit": page.commit(), "machine": page.machine(), "date": datetime.date.today().isoformat(), "cargo": version,
            "flags": FLAGS, "load": os.getloadavg()[0], "rows": []}
    for row in PARTS[part](folder, asked):
        said["rows"].append(row)
        print(page.describe_row(part, row), flush=True)
    (folder / f"{part}.json").write_text(json.dumps(said, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if folder.is_relative_to(ROOT):
        sys.exit(f"{folder} is inside the repository: choose a folder outside of it")
    if not asked.page:
        folder.mkdir(parents=True, exist_ok=True)
        copy_programs(folder)
        for part in asked.parts:
            if asked.again or not (folder / f"{part}.json").exists():
                print(f"== {part}", flush=True)
                record_part(part, folder, asked)
    missing = page.write_pages(folder)
    print(f"docs/performance.md and README.md are written{'; missing: ' + ', '.join(missing) if missing else ''}")


if __name__ == "__main__":
    main()
