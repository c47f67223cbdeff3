#!/usr/bin/env python3
"""Tests everything that this machine can test. Called by ../test.sh, which explains the options.

Checks and builds run first, one after another, because each uses all processors. Then programs and parts run in
parallel, one per processor. Missing tools are fetched meanwhile on request. The last lines are a table: the parts that
ran and their times, and the skipped parts with the command that installs their tools.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import test_times

ROOT = Path(__file__).resolve().parent.parent
STARTED = time.monotonic()

# Environment of programs, unless everything is requested. Casts are tested on both sides of every change of the result,
# and on all 2^32 inputs only with the best instruction set and core's own definition.
SPARSE = {"GRADSCALE_CASTS": "sparse"}
BRIEF = {"GRADSCALE_BRIEF": "1"}
BRIEF_ENVIRONMENT = {
    ("gradscale-core", "exhaustive"): SPARSE,
    # All inputs with the best instruction set, and few with the others, which emulated processors run too.
    ("gradscale-cpu", "conformance"): {"GRADSCALE_BRIEF": "others"},
    ("gradscale-cuda", "emulation"): SPARSE,
    # The reference against itself; backends are compared with it on all inputs.
    ("gradscale-conformance", "conformance"): BRIEF,
    ("gradscale-conformance", "third_party"): BRIEF,
    # A fixed quarter of the inputs.
    ("gradscale-cli", "fuzz"): BRIEF,
}
# Environment if everything is requested.
ALL = {("gradscale-engine-tests", "ranks"): {"GRADSCALE_STEPS": "100"}}
# Long programs in the order in which they start; the others follow.
LONGEST_FIRST = ["emulation", "tiles", "faults", "conformance", "training", "engine", "exhaustive"]
# Tests that give a result within minutes after a small change: one device, and no long program.
QUICK = """chain golden mistakes policy prop_models prop_sites prop_solve prop_stats prop_words schedules sites
    conformance threads engine checkpoint shift operands import
    classify data program replay report""".split()
# The packages of these tests, and one that gives third-party crates the features of all builds. Readers of data are
# tested by the program's test `data`.
QUICK_PACKAGES = [
    word
    for name in ("", "-core", "-cpu", "-conformance", "-engine-tests", "-cli", "-same-features")
    for word in ("-p", f"gradscale{name}")
]

# Separate scripts. Each reports the checks that it could not run; its last line starts with PASSED, FAILED or SKIPPED.
# `--fetch` only installs the tools that a script lacks.
PARTS = {
    # First, because programs are built with MPI if it is installed.
    "MPI": ["scripts/mpi.sh"],
    "wgpu on software drivers": ["backend-wgpu/drivers.sh"],
    "emulated processors": ["backend-cpu/emulated.sh"],
    "bare metal": ["core/firmware/run.sh"],
    "Miri": ["core/miri.sh"],
    "TensorBoard": ["cli/tests/tensorboard/run.sh"],
    "Python package": ["python/test.sh"],
    "C library": ["capi/test.sh"],
    "WebAssembly": ["npm/test.sh"],
    "browser": ["web/test.sh"],
    "ONNX": ["tests/onnx/run.sh"],
    "publishing": ["scripts/publish.sh", "--brief"],
    "releases": ["scripts/release_test.py"],
    "table of times": ["scripts/test_times_test.py"],
    "starter": ["scripts/starter.sh"],
    "GPU bundle": ["scripts/gpu_bundle/test.py"],
    "the page of speeds": ["scripts/performance_test.py"],
    "PyTorch beside the CUDA bench": ["scripts/peers_test.sh"],
    "paired statistics": ["scripts/paired_test.py"],
    "links and citations": ["scripts/check_docs.py"],
    "mutants of core": ["core/tests/mutants/run.py", "--check"],
    "site": ["scripts/site_test.py"],
    "names": ["scripts/names_test.py"],
    "natural experiments": ["scripts/natural/test.py"],
    "claims": ["scripts/claims_test.py"],
}
# Time limit in minutes, after which a program counts as hanging: three times the longest on a slow machine. With
# `--all` some programs take hours.
LIMIT = 45
# Parts that `--all` adds, or runs instead of those above.
EXHAUSTIVE = {
    "wgpu on software drivers": ["backend-wgpu/drivers.sh", "--all"],
    "emulated processors": ["backend-cpu/emulated.sh", "--all"],
    "Python package": ["python/test.sh", "--all"],
    "CUDA kernels, compiled afresh": ["backend-cuda/kernels.sh", "--all"],
    "golden values": ["tests/golden/run.sh"],
    "mutants of core": ["core/tests/mutants/run.py"],
    "MPI": ["scripts/mpi.sh", "--all"],
    "WebAssembly": ["npm/test.sh", "--all"],
    "browser": ["web/test.sh", "--all"],
    "adapters": ["adapters/test.sh"],
    "publishing": ["scripts/publish.sh"],
    "starter": ["scripts/starter.sh", "--all"],
    "wheels": ["scripts/wheels.sh"],
}

# Arguments of cargo: the profile of the tests everywhere, so that macros and build scripts are compiled once.
CARGO = "--profile", "tested", "--locked", "--quiet"
STRICT = "-D", "warnings"
# Features of the program with the devices of servers.
DEVICES = ("gradscale-cli/wgpu,gradscale-cli/cuda",)

# What cargo says of the programs that it has built, for `built.sh`.
BUILT = tempfile.NamedTemporaryFile("w", suffix=".json")
# Set as soon as MPI is installed, or known to be unavailable.
MPI = threading.Event()


def features(*others):
    """Returns the features of all builds, which are the same everywhere, so that nothing is built twice."""
    MPI.wait()
    found = subprocess.run([ROOT / "scripts/features.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return found.split() + [f"--features={one}" for one in others]


# Running processes. `timeout` takes all children of a job along, but keeps the terminal's Ctrl-C from it.
RUNNING = set()


def interrupted(number, _):
    """Ends all running processes, and this script."""
    for process in list(RUNNING):
        process.terminate()
    os._exit(128 + number)


@dataclass
class Job:
    """Command to run."""

    name: str
    command: list
    folder: Path = ROOT
    environment: dict = field(default_factory=dict)
    # True if its last line reports the result.
    tells: bool = False


@dataclass
class Result:
    """Result of a job: elapsed seconds, and seconds of all processors."""

    name: str
    wall: float
    processors: float
    verdict: str
    note: str = ""


def run(job, output=None):
    """Runs a job to its end, with output to the file `output` or to the terminal."""
    start = time.monotonic()
    errors = subprocess.STDOUT if output else None
    limited = "--all" not in sys.argv and shutil.which("timeout")
    limit = ["timeout", "--kill-after=10", f"{LIMIT}m"] if limited else []
    try:
        process = subprocess.Popen(
            limit + job.command, cwd=job.folder, env={**os.environ, **job.environment}, stdout=output, stderr=errors
        )
    except OSError as error:
        # A command that cannot start has failed.
        print(f"{job.name}: {error}", file=sys.stderr)
        return Result(job.name, 0, 0, "FAILED")
    RUNNING.add(process)
    # Processor time includes that of all children that were waited for.
    _, status, used = os.wait4(process.pid, 0)
    RUNNING.remove(process)
    process.returncode = os.waitstatus_to_exitcode(status)
    if limit and process.returncode in (124, 137):
        print(f"{job.name} had not ended after {LIMIT} minutes", flush=True)
    verdict = "PASSED" if process.returncode == 0 else "FAILED"
    return Result(job.name, time.monotonic() - start, used.ru_utime + used.ru_stime, verdict)


class Tests:
    """Results of the jobs so far."""

    def __init__(self):
        self.results = []
        self.lock = threading.Lock()
        self.left_out = []

    def step(self, name, *command, **environment):
        """Runs a job in the foreground. A failure ends everything."""
        print(f"\n== {name}", flush=True)
        result = run(Job(name, list(command), environment=environment))
        self.results.append(result)
        if result.verdict == "FAILED":
            self.end()

    def aside(self, job):
        """Runs a job, and prints its output after its end."""
        with tempfile.TemporaryFile() as output:
            result = run(job, output)
            output.seek(0)
            text = output.read()
        if job.tells:
            last = text.decode(errors="replace").rstrip().rsplit("\n", 1)[-1]
            said, _, result.note = last.partition(": ")
            if result.verdict == "PASSED":
                result.verdict = said if said in ("PASSED", "SKIPPED") else "FAILED"
        with self.lock:
            self.results.append(result)
            print(f"\n== {job.name}, {result.wall:.0f} s", flush=True)
            sys.stdout.buffer.write(text)
            sys.stdout.flush()

    def side_by_side(self, jobs):
        """Runs one job per processor."""
        waiting = iter(jobs)

        def work():
            while True:
                with self.lock:
                    job = next(waiting, None)
                if job is None:
                    return
                self.aside(job)

        threads = [threading.Thread(target=work) for _ in range(os.cpu_count() or 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def end(self):
        """Prints the table and leaves."""
        print(f"\n== summary\n\n{'':52} {'seconds':>8} {'processors’':>12}")
        for result in self.results:
            print(f"{result.name:44.44}{result.verdict:8} {result.wall:8.0f} {result.processors:12.0f}")
        processors = sum(result.processors for result in self.results)
        print(f"{'all':52} {time.monotonic() - STARTED:8.0f} {processors:12.0f}\n")
        for result in self.results:
            if result.note:
                print(f"{result.name}: {result.verdict}: {result.note}")
        for line in self.left_out:
            print(f"left out: {line}")
        failed = [result.name for result in self.results if result.verdict == "FAILED"]
        if "--record" in sys.argv:
            self.record(processors)
        print("FAILED: " + ", ".join(failed) if failed else "PASSED: all that ran")
        sys.exit(1 if failed else 0)

    def record(self, processors):
        """Writes the table of docs/test-times.md, beside the times of the last release."""
        commit = git("describe", "--always", "--dirty")
        released = git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*")
        cpus = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
        head = (
            f"`./test.sh {' '.join(word for word in sys.argv[1:] if word != '--record')}` at {commit}: "
            f"{(time.monotonic() - STARTED) / 60:.1f} minutes, {processors / 60:.0f} minutes of processors; "
            f"{len(cpus)} × {cpus[0] if cpus else 'unknown'}. Parts run side by side."
        )
        path = ROOT / "docs/test-times.md"
        before = git("show", f"{released}:docs/test-times.md") if released else ""
        times = test_times.rows(self.results)
        path.write_text(test_times.with_table(path.read_text(), head, times, released, test_times.read(before)))


def git(*arguments):
    """Returns what git prints, or nothing if it fails."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def built(*command):
    """Builds programs by a command of cargo, and yields package, target, path and folder of each that is run here."""
    cargo = ["cargo", *command, *CARGO, "--message-format=json", *features()]
    output = subprocess.run(cargo, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    if command[0] == "test":
        # Parts then find their programs without a call of cargo, which looks at every source again.
        BUILT.write(output.stdout)
        BUILT.flush()
        os.environ["GRADSCALE_BUILT"] = BUILT.name
    for line in output.stdout.splitlines():
        one = json.loads(line)
        # The third party's backend is an example that runs the suite.
        if one.get("executable") and (one["profile"]["test"] or one["target"]["name"] == "third_party"):
            package = one["package_id"].rsplit("#", 1)[-1].split("@")[0]
            yield package, one["target"]["name"], one["executable"], Path(one["manifest_path"]).parent


def program(package, target, path, folder, mode):
    """Returns the job of a test program. Tests print the numbers that they have counted."""
    environment = (ALL if mode == "--all" else BRIEF_ENVIRONMENT).get((package, target), {})
    if mode == "--quick":
        environment = {**SPARSE, **BRIEF}
    # Tests of wgpu that need a driver find none here, because they have a part of their own.
    environment = {**environment, "VK_DRIVER_FILES": "/dev/null"}
    arguments = ["--quiet"] if target == "third_party" else ["--nocapture"]
    return Job(f"{package.removeprefix('gradscale-')}: {target}", [path, *arguments], folder, environment)


def fetch():
    """Installs the tools that the parts lack, one after another, because package managers do not run in parallel."""
    start = time.monotonic()
    for name, command in PARTS.items():
        if name != "MPI":
            MPI.set()
        subprocess.run([ROOT / command[0], "--fetch"], cwd=ROOT, check=False)
    print(f"-- fetched what could be had, {time.monotonic() - start:.0f} s", flush=True)


def checks(tests, mode):
    """Format and lints. If one fails, nothing else runs."""
    strict = "--", *STRICT
    for workspace in (".",) if mode == "--quick" else (".", "core/firmware", "adapters"):
        tests.step(f"format of {workspace}", "cargo", "fmt", "--all", "--check", "--manifest-path", f"{workspace}/Cargo.toml")
    if mode != "--quick":
        # Meanwhile MPI is installed, if it is to be. The second package chooses the features of third-party crates that the
        # lints choose, so that these are not checked three times.
        same = "-p", "gradscale-same-features"
        alone = "-p", "gradscale", *same, "--no-default-features", "--lib"
        tests.step("the engine without a backend", "cargo", "clippy", *CARGO, *alone, *strict)
        # What `cargo run` builds.
        tests.step("the program without its parts", "cargo", "clippy", *CARGO, "-p", "gradscale-starter", *same, *strict)
    # The program with the devices of servers; without these devices it is built for its tests.
    which = [*QUICK_PACKAGES, *features()] if mode == "--quick" else ["--workspace", *features(*DEVICES)]
    tests.step("lints", "cargo", "clippy", *CARGO, "--all-targets", *which, *strict)


def programs(tests, mode):
    """Builds all test programs: a job for each, the longest first."""
    print("\n== build", flush=True)
    start, before = time.monotonic(), os.times()
    commands = [("test", "--no-run", *QUICK_PACKAGES, "--lib", *(word for name in QUICK for word in ("--test", name)))]
    if mode != "--quick":
        # What has `test = false` in its manifest is left out, and with it Python's bindings, the tool of the page and others
        # with many dependencies; `--lib` and `--bins` would build it as empty test programs. Benchmarks are left out too.
        # Of the examples only the one that runs here is built (`cargo test` would build its tests, not its main).
        # clippy checks that the others compile.
        commands = [("test", "--no-run", "--workspace", "--tests"), ("build", "--workspace", "--example", "third_party")]
    try:
        found = [one for command in commands for one in built(*command)]
    except subprocess.CalledProcessError:
        tests.results.append(Result("build", time.monotonic() - start, 0, "FAILED"))
        tests.end()
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    tests.results.append(Result("build", time.monotonic() - start, used, "PASSED"))
    if mode == "--quick":
        tests.left_out.append("all devices but the CPU, most inputs, examples of the documentation: ./test.sh")
    long = {name: i for i, name in enumerate(LONGEST_FIRST)}
    return [program(*one, mode) for one in sorted(found, key=lambda one: long.get(one[1], len(LONGEST_FIRST)))]


def checked_by_clippy():
    """Returns the environment in which cargo takes what the lints have checked, and need not check it again."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], stdout=subprocess.PIPE, text=True, check=True).stdout
    driver = Path(sysroot.strip()) / "bin/clippy-driver"
    if not driver.exists():
        return {}
    # As cargo-clippy passes them on. If a release does otherwise, crates are checked again, and that is all.
    arguments = "".join(f"{argument}__CLIPPY_HACKERY__" for argument in STRICT)
    return {"RUSTC_WORKSPACE_WRAPPER": str(driver), "CLIPPY_ARGS": arguments}


def documentation():
    """Returns the job that builds the pages of all crates. Half of the time it keeps one processor, so it runs beside parts."""
    # With the devices and, because of an example, the dependencies of tests, third-party crates have the features that the
    # lints chose, and are not compiled again. The packages for JavaScript and for features are empty here; the program is
    # the only one whose pages have not the name of a library's.
    documented = "--exclude", "gradscale-npm", "--lib", "--bin", "gradscale-web-bindgen", "--example", "third_party"
    pages = "cargo", "doc", *CARGO, "--workspace", "--no-deps", *documented, *features(*DEVICES)
    return Job("documentation", list(pages), environment={**checked_by_clippy(), "RUSTDOCFLAGS": "-Dwarnings"})


def parts(mode):
    """Separate scripts, and the examples, which cargo builds and runs."""
    if mode == "--quick":
        return []
    commands = PARTS | EXHAUSTIVE if mode == "--all" else PARTS
    examples = "cargo", "test", *CARGO, "--workspace", *features(), "--doc"
    jobs = [Job(name, command, tells=command[0].endswith(".sh")) for name, command in commands.items()]
    # Behind the drivers of wgpu, which take long and do not build.
    jobs.insert(2, documentation())
    return [*jobs, Job("examples of the documentation", list(examples))]


def main():
    mode = next((argument for argument in sys.argv[1:] if argument in ("--quick", "--all")), "")
    only = next((argument.removeprefix("--only=") for argument in sys.argv[1:] if argument.startswith("--only=")), "")
    os.environ["RUST_BACKTRACE"] = "0"
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    tests = Tests()
    fetching = threading.Thread(target=fetch)
    if "--install" in sys.argv:
        fetching.start()
    else:
        MPI.set()
    if not only:
        checks(tests, mode)
    jobs = [job for job in parts(mode) if only in job.name]
    # Parts build the programs that they need.
    if not only or not jobs:
        jobs += [job for job in programs(tests, mode) if only in job.name]
    if "--install" in sys.argv:
        fetching.join()
    if not jobs:
        sys.exit(f"nothing has {only} in its name; the table in docs/test-times.md has the names")
    if only:
        tests.left_out.append(f"all but {only}")
    elif mode == "":
        tests.left_out.append(
            "2^32 casts on every device, all inputs on every instruction set, SwiftShader's whole suite, CUDA kernels "
            "compiled afresh (those on record are not compiled again), mutants: ./test.sh --all"
        )
    if not os.environ.get("GRADSCALE_DATA"):
        tests.left_out.append("tests on real data: set GRADSCALE_DATA to a folder with camvid-90x120, fashion-mnist-10k …")
    tests.side_by_side(jobs)
    tests.end()


main()
