#!/usr/bin/env python3
"""Mutation test of gradscale-core: inserts one mistake at a time and checks that a test fails.

    python3 run.py                 all of mutants.toml, one after the other
    python3 run.py --only NAME     one of them (may be given several times)
    python3 run.py --list          their names
    python3 run.py --check         whether each of their texts still occurs exactly once in the source; runs nothing
    python3 run.py --write         all, and writes the table to RESULTS.md in this directory

It needs Python 3.11 and cargo. The crate is copied to a temporary workspace with a separate target directory, so the
checkout is not modified. All tests must pass there before the first mutant. A mutant counts if some test catches it.
The script exits with 1 if no test catches one, if it does not compile, or if it breaks more than half of the tests,
because then they do not identify the mistake.

tests/exhaustive.rs tests casts and formats only and takes minutes, so it runs for those mutants of cast/ and format.rs
that no other test has caught. Property tests get a fixed seed, so that results are reproducible. All mutants take
about 45 minutes on two cores.
"""

import argparse
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORE = HERE.parents[1]
ROOT = CORE.parent
EXHAUSTIVE = "tests/exhaustive.rs"
LIMIT_S = 900  # for one mutant
SHOWN = 4  # names of tests in one row of the table


@dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str

    def needs_exhaustive(self):
        return self.file.startswith("cast/") or self.file == "format.rs"


@dataclass
class Run:
    """Result of one `cargo test`."""

    passed: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    compiled: bool = True
    in_time: bool = True
    output: str = ""

    def total(self):
        return len(self.passed) + len(self.failed)


def read_mutants():
    with open(HERE / "mutants.toml", "rb") as table:
        files = tomllib.load(table)
    mutants = [Mutant(name, file, *texts) for file, rows in files.items() for name, texts in rows.items()]
    names = [mutant.name for mutant in mutants]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        sys.exit(f"mutants.toml: names stand twice: {sorted(doubled)}")
    return mutants


def copy_workspace(to):
    """Copies the crate into a separate workspace, with the settings and the lock file of this one."""
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest = re.sub(r"^members = \[[^]]*\]", 'members = ["core"]', manifest, flags=re.MULTILINE)
    manifest = re.sub(r"^(default-members|exclude) = .*\n", "", manifest, flags=re.MULTILINE)
    # Without the engine, which is the package in the root.
    sections = re.split(r"^(?=\[)", manifest, flags=re.MULTILINE)
    kept = [section for section in sections if re.match(r"\[(workspace|profile\.(release|dev))\b", section)]
    (to / "Cargo.toml").write_text("".join(kept))
    shutil.copy(ROOT / "Cargo.lock", to)
    skip = shutil.ignore_patterns("target", "firmware", "mutants", "proptest-regressions", "*.proptest-regressions")
    shutil.copytree(CORE, to / "core", ignore=skip)


def environment(workspace, target):
    return os.environ | {
        "CARGO_TARGET_DIR": str(target),
        # Builds faster. The tests run three times slower, which is relevant for the exhaustive tests only.
        "CARGO_INCREMENTAL": "0" if (workspace / "core" / EXHAUSTIVE).exists() else "1",
        "CARGO_TERM_COLOR": "never",
        "RUSTFLAGS": "--cap-lints=warn",  # a mutant may leave something unused
        "PROPTEST_RNG_SEED": "1",
        "PROPTEST_MAX_SHRINK_ITERS": "0",  # that a test fails is enough
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",  # or the failures of one mutant are replayed for the next
    }


def run_tests(workspace, target):
    """Runs all tests, to the end or to the time limit."""
    command = ["cargo", "test", "--release", "--package", "gradscale-core", "--no-fail-fast"]
    process = subprocess.Popen(
        command, cwd=workspace, env=environment(workspace, target), text=True, encoding="utf-8", errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )
    run = Run()
    try:
        run.output, _ = process.communicate(timeout=LIMIT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
        os.killpg(process.pid, signal.SIGKILL)
        run.output, _ = process.communicate()
        if isinstance(stop, KeyboardInterrupt):
            raise
        run.in_time = False
    run.compiled = "error: could not compile" not in run.output
    binary = ""
    for line in run.output.splitlines():
        if heading := re.match(r"\s+Running (?:unittests )?(\S+)\.rs \(", line):
            binary = heading[1].removeprefix("tests/")
        elif line.lstrip().startswith("Doc-tests"):
            binary = "doc"
        elif result := re.match(r"test (.+?)(?: - should panic| - compile fail)? \.\.\. (ok|FAILED)$", line):
            # A doctest is "src/cast/mod.rs - cast::Format::encode (line 83)", or in the README without an item.
            name = re.sub(r"^\S+ - (\S+) \(line \d+\)$", r"\1", result[1])
            name = re.sub(r"^\S+ - \((line \d+)\)$", r"README, \1", name)
            (run.passed if result[2] == "ok" else run.failed).append(f"{binary}::{name}")
    if run.in_time and run.compiled and process.returncode != 0 and not run.failed:
        sys.exit(f"cargo test failed, but no test did:\n{run.output[-3000:]}")
    return run


def apply(mutant, source):
    """Inserts the mistake, and returns the path and the original text."""
    path = source / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        sys.exit(f"{mutant.name}: its text occurs {text.count(mutant.old)} times in {mutant.file}, not once")
    path.write_text(text.replace(mutant.old, mutant.new))
    return path, text


def check(mutants, source):
    """Returns a sentence for each mutant whose text does not occur exactly once in its file."""
    faults = []
    for mutant in mutants:
        path = source / mutant.file
        count = path.read_text().count(mutant.old) if path.exists() else 0
        if count != 1:
            faults.append(f"{mutant.name}: its text occurs {count} times in {mutant.file}, not once")
    return faults


def verdict(run, expected):
    """Returns whether the mutant counts, and the tests that caught it."""
    if not run.compiled:
        return False, "does not compile"
    if run.failed and 2 * len(run.failed) > expected:
        return False, "breaks more than half of the tests"
    if run.failed:
        more = len(run.failed) - SHOWN
        return True, ", ".join(f"`{name}`" for name in run.failed[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (False, "**not caught**") if run.in_time else (True, "time limit")


def said_by(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def state_of_checkout():
    changed = " with changes" if said_by("git", "status", "--porcelain", "core/src", "core/tests/*.rs") else ""
    commit = said_by("git", "rev-parse", "--short", "HEAD") + changed
    return f"commit {commit}, {said_by('rustc', '--version')}, {datetime.date.today()}"


def report(rows, total, exhaustive, state):
    lines = [
        "# Mutants of gradscale-core",
        "",
        "Written by `run.py`, which explains itself. Mistakes, made one at a time, and the tests that caught them.",
        "",
        f"- {state}",
        f"- {len(rows)} mutants, {sum(counts for _, counts, _, _ in rows)} of them count",
        f"- {total} tests pass without a mutant; {exhaustive} of them, in {EXHAUSTIVE}, look at casts and formats only "
        "and run only for mutants there that no other test catches",
        "",
        "| mutant | caught by | failing |",
        "|---|---|---|",
    ]
    lines += [f"| {mutant.name} | {caught} | {failing} |" for mutant, _, caught, failing in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Do the tests of gradscale-core notice mistakes?")
    parser.add_argument("--only", metavar="NAME", action="append", help="this mutant only (repeatable)")
    parser.add_argument("--list", action="store_true", help="names and files of the mutants")
    parser.add_argument("--check", action="store_true", help="whether all mutants can still be made")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    arguments = parser.parse_args()
    mutants = read_mutants()
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.name:40} {mutant.file}")
        return
    if arguments.check:
        if faults := check(mutants, CORE / "src"):
            sys.exit("\n".join(faults) + f"\nFAILED: {len(faults)} mutants")
        print(f"PASSED: {len(mutants)} mutants can be made")
        return
    if unknown := set(arguments.only or []) - {mutant.name for mutant in mutants}:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    if arguments.only:
        mutants = [mutant for mutant in mutants if mutant.name in arguments.only]

    with tempfile.TemporaryDirectory(prefix="gradscale-mutants-") as temporary:
        workspace, target = Path(temporary, "workspace"), Path(temporary, "target")
        workspace.mkdir()
        copy_workspace(workspace)
        state = state_of_checkout()
        source = workspace / "core/src"
        for mutant in mutants:  # All mutants must apply before the first, slow run starts.
            path, text = apply(mutant, source)
            path.write_text(text)
        clean = run_tests(workspace, target)
        if clean.failed or not clean.compiled or not clean.in_time:
            sys.exit(f"without a mutant: {clean.failed or 'no result'}\n{clean.output[-3000:]}")
        exhaustive = sum(name.startswith("exhaustive::") for name in clean.passed)
        print(f"without a mutant: {clean.total()} tests pass")
        print(f"{exhaustive} of them, in {EXHAUSTIVE}, run only for mutants of cast/ and format.rs that no other catches")

        rows = []
        present, absent = workspace / "core" / EXHAUSTIVE, Path(temporary, "exhaustive.rs")
        for mutant in mutants:
            if present.exists():
                shutil.move(present, absent)
            expected = clean.total() - exhaustive
            path, text = apply(mutant, source)
            run = run_tests(workspace, target)
            if mutant.needs_exhaustive() and run.compiled and not run.failed:
                shutil.move(absent, present)
                expected = clean.total()
                run = run_tests(workspace, target)
            path.write_text(text)
            counts, caught = verdict(run, expected)
            rows.append((mutant, counts, caught, f"{len(run.failed)} of {expected}"))
            print(f"\n{mutant.name} ({mutant.file}): {len(run.failed)} of {expected} tests fail", flush=True)
            for name in run.failed:
                print(f"    {name}")
            if not counts:
                print(f"    DOES NOT COUNT: {caught}", flush=True)

    table = report(rows, clean.total(), exhaustive, state)
    print(f"\n{table}")
    if arguments.write:
        (HERE / "RESULTS.md").write_text(table)
    if not all(counts for _, counts, _, _ in rows):
        sys.exit(1)


# Nothing needs to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    main()
