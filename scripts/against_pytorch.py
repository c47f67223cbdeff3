#!/usr/bin/env python3
"""Speed, memory and accuracy of all networks compared with PyTorch: docs/against-pytorch.md.

usage: scripts/against_pytorch.py --data DIRECTORY --results DIRECTORY [--parts PART ...] [--only NETWORK ...] [--again]
       scripts/against_pytorch.py --results DIRECTORY --page

    pip install torch torchvision numpy safetensors sacrebleu jiwer scipy mean-average-precision

Parts, each a directory of results with a file for each network. A part that exists is not run again, unless --again:

  speed     a training step of each network of docs/workloads.md as it is trained there, by fp32 and gs, beside PyTorch's f32
            on the same cores, turn by turn; --seconds N each, at most
  lengths   memory of a training whose batches change their length
  paper     a step of each network at its paper's size: time, and the memory of the process
  full      answers and gradients of the papers' networks for images and boxes against PyTorch's f64, beside its own f32

DIRECTORY of data is that of scripts/workloads.py. --page only writes the page from existing results.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import against_page
import workloads
from turns import PROFILE, ROOT, TARGET, Turns, build

# Options of a step at the paper's size: pictures that are made up where those at hand are too small, and batches so small
# that a machine of 16 GB takes the step.
PICTURES = ["alexnet", "vgg-16", "googlenet", "inception-v2", "inception-v3", "resnet-18", "resnet-50"]
PAPER = {
    **{network: (None, "--batch 2") for network in PICTURES},
    "ssd-300": ("bccd", "--batch 2"),
    "ssd-512": ("bccd", "--batch 2"),
    "segnet-basic": ("camvid-360x480", "--batch 2"),
    "segnet": ("camvid-360x480", "--batch 2"),
    "deep-speech-2": ("fsdd", "--batch 8"),
    "seq2seq-1": ("text/multi30k-en-de", "--batch 16"),
    "seq2seq-3": ("text/multi30k-en-de", "--batch 16"),
    "seq2seq-5": ("text/multi30k-en-de", "--batch 16"),
    "biglstm": ("text/wikitext-2", "--batch 4"),
    "decoder": ("text/tinyshakespeare", "--batch 1"),
    "dcgan": ("fashion-mnist", "--batch 16"),
}
# Scripts of golden values that compare a network at its paper's size, for networks that are no classifiers.
ONE = {**{network: ("detection.py", "--paper", network) for network in ["ssd-300", "ssd-512"]},
       "faster-rcnn": ("faster_rcnn.py", "--paper")}
LENGTHS = ["seq2seq-1", "deep-speech-2"]


class Steps(Turns):
    """Training steps of the engine in a process of their own, one at a time."""

    def __init__(self, methods, options, threads):
        program = TARGET / PROFILE / "examples/steps"
        super().__init__([program, "--methods", ",".join(methods), "--threads", threads, *options])
        # The program prints information about the data before the line of JSON.
        self.about = self.read()

    step = Turns.ask


def busy(process="self"):
    """CPU time of a process in seconds, which other processes of the machine do not influence."""
    tasks = pathlib.Path(f"/proc/{process}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def trained(workload, data):
    """Options of a network as docs/workloads.md trains it, without the number of steps."""
    return ["--data", data / workload.data, *workload.options]


def speed(workload, asked):
    """Steps in turn. The first ones of each size of a batch do not count: they compile."""
    import torch

    import pytorch_networks

    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    layouts = {"PyTorch": torch.contiguous_format}
    if workload.network in pytorch_networks.PICTURES:
        layouts["PyTorch, channels last"] = torch.channels_last
    theirs = {name: pytorch_networks.training(workload.network, layout) for name, layout in layouts.items()}
    methods = ["fp32", "gs"]
    seen, rounds, fetched, worked = {}, [], [], []
    with Steps(methods, trained(workload, asked.data), asked.threads) as ours:
        end = time.perf_counter() + asked.seconds
        while len(rounds) < 5 or len(rounds) < 40 and time.perf_counter() < end:
            taken, work = {}, {}
            for method in methods:
                before = busy(ours.process.pid)
                step = ours.step(method)
                taken[method], sizes = step["seconds"], step["sizes"]
                time.sleep(0.01)
                work[method] = busy(ours.process.pid) - before
            fetched.append(step["fetched"])
            for name, training in theirs.items():
                batch = training.batch(sizes)
                before, start = busy(), time.perf_counter()
                training.step(batch)
                taken[name] = time.perf_counter() - start
                time.sleep(0.01)
                work[name] = busy() - before
            seen[tuple(sizes)] = seen.get(tuple(sizes), 0) + 1
            # If lengths change, two measurements of a length are enough.
            if len(seen) > 1 and seen[tuple(sizes)] > 1 or len(seen) == 1 and seen[tuple(sizes)] > 3:
                rounds.append(taken)
                worked.append(work)
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    faster = min(theirs, key=medians.get)
    ratios = {method: statistics.median(one[method] / one[faster] for one in rounds) for method in methods}
    busiest = {name: statistics.median(one[name] for one in worked) for name in worked[0]}
    return {"words": ours.about["network"], "sizes": sizes, "steps": len(rounds), "worked": busiest, "medians": medians, "faster": faster,
            "ratios": ratios, "fetched": statistics.median(fetched), "threads": asked.threads, "torch": torch.__version__,
            "pytorch parameters": next(iter(theirs.values())).parameters()}


def lengths(workload, asked):
    """Memory of the process after certain numbers of steps."""
    after, sizes = {}, set()
    with Steps(["gs"], trained(workload, asked.data), asked.threads) as ours:
        for number in range(1, 401):
            step = ours.step("gs")
            sizes.add(tuple(step["sizes"]))
            if number in (50, 100, 200, 300, 400):
                after[number] = [step["resident"], step["device"], len(sizes)]
    return {"words": ours.about["network"], "after": after}


def pictures(folder):
    """Two classes of images that are made up, larger than any crop."""
    import torch
    from torchvision.io import write_jpeg

    torch.manual_seed(0)
    for part in ["train", "test"]:
        for name in ["one", "two"]:
            directory = pathlib.Path(folder, part, name)
            directory.mkdir(parents=True)
            for number in range(4):
                coarse = torch.rand(1, 3, 12, 12)
                image = 255 * torch.nn.functional.interpolate(coarse, (340, 340), mode="bilinear")[0]
                write_jpeg(image.to(torch.uint8), str(directory / f"{number}.jpg"))
    return folder


def paper(network, asked):
    """A step of each method in a process of its own, so that the memory is that of one; the second, as the first compiles."""
    data, options = PAPER[network]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        where = asked.data / data if data else pictures(folder)
        command = ["--network", network, "--size", "paper", "--data", where, *options.split()]
        for method in ["fp32", "gs"]:
            with Steps([method], command, asked.threads) as ours:
                steps = [ours.step(method) for _ in range(2)]
            found[method] = {key: steps[1][key] for key in ["seconds", "loss", "skipped", "peak", "device", "activations"]}
            found[method]["first"] = steps[0]["seconds"]
            found[method]["losses"] = [step["loss"] for step in steps]
    return {"words": ours.about["network"], "batch": ours.about["batch"], "sizes": steps[1]["sizes"], "methods": found,
            "data": data, "threads": asked.threads}


def full(network, asked):
    """Runs the scripts of golden values in a process of its own, because PyTorch keeps much memory."""
    script, option, *names = ONE.get(network, ("vision.py", "--full", network))
    directory = asked.results / "full"
    # The script writes whether the values agree.
    subprocess.run([sys.executable, ROOT / "tests/golden" / script, option, "--results", directory, *names], check=False)
    path = directory / f"{network}.json"
    return json.loads(path.read_text()) if path.exists() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--parts", nargs="*", default=["speed", "lengths", "paper"], choices=against_page.PARTS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    asked.results = asked.results.resolve()
    if not asked.page:
        if asked.data is None:
            parser.error("--data says where data are")
        asked.data = asked.data.resolve()
        build("-p", "gradscale-cli", "--example", "steps")
        work(asked)
    missing = against_page.write(asked.results)
    print(f"docs/against-pytorch.md is written{'; missing: ' + ', '.join(missing) if missing else ''}")


def work(asked):
    by = {workload.network: workload for workload in workloads.WORKLOADS}
    tasks = {"speed": (speed, by), "lengths": (lengths, {network: by[network] for network in LENGTHS}),
             "paper": (paper, {network: network for network in PAPER}),
             "full": (full, {network: network for network in against_page.FULL})}
    for part in asked.parts:
        function, networks = tasks[part]
        for network, what in networks.items():
            path = asked.results / part / f"{network}.json"
            if asked.only and network not in asked.only or path.exists() and not asked.again:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            found = function(what, asked)
            if found is None:
                continue
            found |= {"network": network, "commit": against_page.commit(), "machine": against_page.machine()}
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{part} {network}: {against_page.line(part, found)}", flush=True)


if __name__ == "__main__":
    main()
