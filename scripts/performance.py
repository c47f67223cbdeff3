#!/usr/bin/env python3
"""The CPU backend compared with other libraries for the same purposes, in alternating runs: docs/performance.md.

usage: scripts/performance.py --results DIRECTORY [--parts PART ...] [--quick] [--again] [--page]

The peers (PyTorch with oneDNN, and OpenBLAS from numpy's wheels; the `gemm` crate and a bare cast are in our bench) are
those of the Python that runs this script. Otherwise they are installed from PyPI into target/peers, whose Python then
runs it. Networks and operators use random data, so no data set is needed.

Parts, each a file in DIRECTORY; an existing part is not run again, unless --again:

  steps       training steps: SegNetBasic in two sizes and widths, ResNet-18, a GRU language model, a transformer
  gemm        products of square matrices
  shapes      products as trainings have them, transposed too
  conv        convolutions in three directions
  statistics  products with statistics and without
  casts       casts with counts, histogram and moments beside a bare cast
  elements    norms, cross-entropy, functions, optimizers beside a copy and PyTorch
  memory      what a step adds to a process
  isa         the other instruction sets of the machine beside its widest
  growth      time and memory of steps over images, pixels, channels and threads: drawings and slopes

All parts take about an hour on a quiet machine of two cores, with --quick (shorter runs) some minutes. --page only
writes the page. With --avx2 both sides are limited to AVX2, as on a processor without wider instructions. It needs a
DIRECTORY of its own, which becomes a separate section.
"""
import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import venv

import performance_page as page
from turns import PROFILE, ROOT, TARGET, Turns, build

PEERS = ROOT / "scripts/performance_peers.py"
# OpenBLAS's threads spin for 2^28 cycles after each call, a tenth of a second, which would slow down the other side's
# run. 2^22 are enough between the calls of one run. The variable is read when numpy is loaded.
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "22"
# Python modules that the peers need.
MODULES = ["jiwer", "matplotlib", "numpy", "PIL", "sacrebleu", "safetensors", "scipy", "threadpoolctl", "torch", "torchvision"]
CORES = os.cpu_count() or 1
# Environment that limits the peers to AVX2, read when they are loaded.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
# Shapes of SegNet: channels, images, rows, columns.
SEGNET = [(16, 12, 90, 120), (16, 12, 180, 240), (64, 4, 90, 120), (64, 2, 180, 240)]
# Texts, tokens of each, kinds of tokens, width, units or heads, layers.
NETWORKS = [("resnet-18", (16, 64, 32, 32)), ("resnet-18", (64, 16, 32, 32)), ("gru", (16, 64, 1000, 128, 256, 2)),
            ("decoder", (8, 128, 1000, 256, 4, 6))]
# Instructions for bfloat16. Without them PyTorch takes ten to a hundred times as long as in f32, and would leave no time for that.
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}
LAYOUTS = ["f32", "f32, channels last"]
# Filter words of the bench and the benchmark names that are kept: all, and those of --quick.
BENCH = {
    "gemm": (["³, f16"], r"gemm \d+³, f16", r"gemm \d+³, f16"),
    "shapes": (["gemm "], r"gemm \d+×.*", r"gemm (43200×64×27|2700×64×3136, bᵀ|16×784×10800, aᵀ|1024×512×128, bᵀ), f16"),
    "conv": (["conv "], r"conv .*", r"conv .*(7×7 (64→64|16→16), 4×90|3×3 16→16|3→16|1×1).*"),
    "statistics": (["statistics of"], r"statistics.*", r"statistics.*"),
    "casts": (["cast of 64 MiB"], r"cast of.*", r"cast of.*"),
    "elements": (["unary", "norm", "cross_entropy", "optimize"], r"(unary (?!Affine)|norm|group|layer|cross|optimize).*",
                 r"(unary (Relu|Exp|Gelu)|norm|layer norm of 256|cross|optimize).*"),
    "isa": (["gemm 1024³", "conv 7×7 64", "unary Gelu", "layer norm of 256", "cast of 64 MiB, Counts"], r".*",
            r"gemm.*|layer norm of 256|conv.*Forward"),
}


def taken(sides, turns, seconds, warm=1):
    """Returns the seconds of every side in every turn, A B A B, without the first. A side is a function that returns
    its time. A pause between two sides lets spinning threads fall asleep."""
    found, end = {name: [] for name in sides}, time.perf_counter() + seconds
    for turn in range(-warm, turns):
        if turn >= 3 and time.perf_counter() > end:
            break
        for name, run in sides.items():
            one = run()
            time.sleep(0.02)
            if turn >= 0:
                found[name].append(one)
    return found


@contextlib.contextmanager
def placed(threads):
    """Keeps processes with a single thread on one processor: both sides use the same one, because processors of a
    virtual machine can differ in speed."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)} if threads == 1 else before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def held():
    """Returns the environment that limits our program to fewer instructions than the machine has."""
    return ["AVX2"] if os.environ.items() >= AVX2.items() else []


def process(network, sizes, threads, variants, ours):
    """Ours or PyTorch's, ready to take steps."""
    command = [TARGET / PROFILE / "examples/turns"] if ours else [sys.executable, PEERS]
    turns = Turns([*command, network, ",".join(map(str, sizes)), threads, *variants, *(held() if ours else [])])
    turns.ready = turns.read() or turns.ended()
    return turns


def stepped(network, sizes, threads, asked, variants):
    """A row of a network."""
    with (placed(threads), process(network, sizes, threads, ["gs"], True) as ours,
          process(network, sizes, threads, variants, False) as theirs):
        one = lambda turns, name: lambda: turns.ask(name)["seconds"]
        sides = {"ours": one(ours, "gs")} | {f"PyTorch {name}": one(theirs, name) for name in variants}
        found = taken(sides, 5 if asked.quick else 20, 20 if asked.quick else 90, warm=2)
    return {"network": network, "sizes": sizes, "threads": threads, "ours": found.pop("ours"), "theirs": found}


def processor():
    """Returns the instruction sets of the processor by Linux's names, without those that are switched off."""
    found = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return {name for name in found if not name.startswith(("avx512", "amx"))} if held() else found


def steps(asked):
    for network, sizes in [("segnet", sizes) for sizes in SEGNET] + NETWORKS:
        images = network in ("segnet", "resnet-18")
        variants = LAYOUTS if images else LAYOUTS[:1]
        if network == "segnet" and BF16 & processor():
            variants = variants + [name.replace("f32", "bf16") for name in LAYOUTS]
        for threads in sorted({1, CORES}):
            yield stepped(network, sizes, threads, asked, variants)


def resident(process, key):
    """Bytes that Linux knows of a process."""
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(re.search(rf"{key}:\s+(\d+)", text).group(1))


def grown(network, sizes, threads):
    """Returns the growth of a process in its first three steps in bytes: activations, gradients, optimizer states."""
    found = {}
    for name, variant, is_ours in [("ours", "gs", True), ("PyTorch f32", "f32", False)]:
        with process(network, sizes, threads, [variant], is_ours) as turns:
            pathlib.Path(f"/proc/{turns.process.pid}/clear_refs").write_text("5")
            before = resident(turns.process, "VmRSS")
            for _ in range(3):
                turns.ask(variant)
            found[name] = resident(turns.process, "VmHWM") - before
    return found


def memory(asked):
    for network, sizes in [("segnet", sizes) for sizes in (SEGNET[:1] if asked.quick else SEGNET)] + NETWORKS[1:]:
        found = grown(network, sizes, CORES)
        yield {"network": network, "sizes": sizes, "threads": CORES, "ours": [found.pop("ours")],
               "theirs": {name: [value] for name, value in found.items()}}


def growth(asked):
    """One size after the other grows."""
    most = 2 if asked.quick else 4
    series = {"images": [(16, 2**i, 90, 120) for i in range(most + 1)],
              "pixels of an image": [(16, 2, 45 * 2**i, 60 * 2**i) for i in range(most)],
              "channels": [(8 * 2**i, 2, 90, 120) for i in range(most)]}
    all_of = [(name, sizes, 1) for name, sizes_of in series.items() for sizes in sizes_of]
    for name, sizes, threads in all_of + [("threads", SEGNET[0], threads) for threads in range(1, CORES + 1)]:
        yield stepped("segnet", sizes, threads, asked, LAYOUTS) | {"series": name, "memory": grown("segnet", sizes, threads)}


def bench(program, words, threads, isa=None):
    """Our bench, line by line."""
    return Turns([program, "--turns", f"--threads={threads}", *([isa] if isa else []), *words])


def rows(part, asked):
    """Lines of the bench, with those of the peers."""
    import performance_peers as peers

    words, usual, quick = BENCH[part]
    program = build("-p", "gradscale-cpu-benches", "--bench", "cpu")
    many = part in ("gemm", "casts", "conv") or not asked.quick
    for threads in sorted({1, CORES} if many else {1}):
        peers.limit(threads)
        with placed(threads), bench(program, words, threads, *held()) as ours:
            while line := ours.read():
                if re.fullmatch(quick if asked.quick else usual, line["case"]):
                    sides = {"ours": lambda: ours.ask("ours")["seconds"]}
                    # The crate takes the widest instructions that it finds.
                    if line["beside"] and not ("crate" in line["beside"] and held()):
                        sides[line["beside"]] = lambda: ours.ask("beside")["seconds"]
                    if part == "elements":
                        sides["copy"] = lambda: ours.ask("copy")["seconds"]
                    if part not in ("casts", "statistics"):
                        sides |= {name: (lambda run=run: peers.burst(run)) for name, run in peers.peers(line["case"]).items()
                                  if "bf16" not in name or BF16 & processor()}
                    found = taken(sides, 5 if asked.quick else 15, 10 if asked.quick else 60)
                    yield line | {"threads": threads, "ours": found.pop("ours"), "theirs": found}
                ours.say("next")


def instructions():
    """The sets of instructions with kernels of their own that this machine has; AMX is for products alone."""
    known = {"AVX-512": {"avx512bw", "avx512dq", "avx512vl"}, "AMX": {"avx512bw", "amx_bf16"}, "AVX2": {"avx2", "fma", "f16c"},
             "NEON": {"asimd"}}
    return [name for name, wanted in known.items() if wanted <= processor()] + ["portable"]


def widest():
    """The set that our products take here."""
    return "AMX" if "AMX" in instructions() else instructions()[0]


def isa(asked):
    """The same lines by the instruction sets of the machine, in turns."""
    words, usual, quick = BENCH["isa"]
    program = build("-p", "gradscale-cpu-benches", "--bench", "cpu")
    baseline, *others = instructions()
    with placed(1):
        sides = {name: bench(program, words, 1, name) for name in (baseline, *others)}
    while all((lines := {name: one.read() for name, one in sides.items()}).values()):
        if re.fullmatch(quick if asked.quick else usual, lines[baseline]["case"]):
            found = taken({name: (lambda one=one: one.ask("ours")["seconds"]) for name, one in sides.items()},
                          5 if asked.quick else 15, 10 if asked.quick else 60)
            for name in others:
                yield lines[name] | {"isa": name, "threads": 1, "ours": found[name], "theirs": {baseline: found[baseline]}}
        for one in sides.values():
            one.say("next")


PARTS = {"steps": steps, **{part: (lambda asked, part=part: rows(part, asked)) for part in BENCH if part != "isa"},
         "memory": memory, "isa": isa, "growth": growth}


def work(part, path, asked):
    """Returns all rows of a part, with their origin."""
    import performance_peers as peers

    build("--example", "turns")
    said = {"part": part, "commit": page.commit(), "machine": page.machine(), "instructions": widest(), "date": datetime.date.today().isoformat(),
            "quick": asked.quick, "profile": PROFILE, "held": bool(held()), "load": os.getloadavg()[0], "peers": peers.about(), "rows": []}
    for row in PARTS[part](asked):
        said["rows"].append(row)
        print(page.line(part, row), flush=True)
    path.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def with_peers():
    """Goes on in target/peers, if this Python lacks something."""
    missing = [name for name in MODULES if not importlib.util.find_spec(name)]
    folder = ROOT / "target/peers"
    python = folder / "bin/python"
    if not missing:
        return
    if pathlib.Path(sys.prefix) == folder:
        sys.exit(f"{folder} lacks {', '.join(missing)}")
    if not (folder / "complete").exists():
        print(f"installing the peers into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        others = [{"PIL": "pillow"}.get(name, name) for name in MODULES if not name.startswith("torch")]
        subprocess.run([*pip, *others], check=True)
        subprocess.run([ROOT / "scripts/fetch_torch.sh", folder], check=True)
        subprocess.run([*pip, "--no-deps", "torchvision"], check=True)
        (folder / "complete").touch()
    os.execv(python, [str(python), *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--avx2", action="store_true")
    asked = parser.parse_args()
    if asked.avx2:
        os.environ |= AVX2
    if not asked.page:
        with_peers()
        asked.results.mkdir(parents=True, exist_ok=True)
        for part in asked.parts:
            path = asked.results / f"{part}.json"
            if asked.again or not path.exists():
                print(f"== {part}", flush=True)
                work(part, path, asked)
    missing = page.write(asked.results, PARTS)
    print(f"docs/performance.md is written{'; missing: ' + ', '.join(missing) if missing else ''}")


if __name__ == "__main__":
    main()
