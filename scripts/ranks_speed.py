#!/usr/bin/env python3
"""Time and traffic of steps of several ranks over networks of given speeds: the table of docs/guide/distributed.md.

    ranks_speed.py PROGRAM [--python PYTHON] [--width 64] [--steps 6] [--rates 100,400,10000] [--ranks 1,2,4] [--record]
    ranks_speed.py PROGRAM --turns 5 [--width 64] [--steps 6] [--rates 100,400,10000] [--ranks 2]

SegNet, a batch of 12 in parts of one rank each, momentum. Compared are `exact` (halves, summed exactly) with and
without overlap with the backward pass, `fast` without overlap (MPI's all-reduce of f32), and PyTorch's
DistributedDataParallel on gloo, plain and with its FP16 hook, by PYTHON, if it has torch. All run in a network
namespace of their own, whose loopback is the only connection of MPI and gloo (MTU 1500). Its rate is that of all ranks
together, as in a switch: the given rate times the number of ranks. Bytes are those that the interface has counted, of a
long run minus a short one. One thread for each rank. `--record` writes the tables into the guide.

`--turns` compares `exact` with and without overlap in alternating runs, so that other work on the machine affects both.

Needs root or user namespaces, `ip` and `tc` (iproute2) and mpirun.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parent / "docs/guide/distributed.md"
MARKS = "<!-- speeds: written by scripts/ranks_speed.py --record -->", "<!-- end of speeds -->"
INSIDE = "GRADSCALE_NAMESPACE"
BATCH, IMAGE = 12, (48, 64)
SHORT_STEPS = 2
WAYS = {
    "exact": "exact",
    "behind": "exact, behind",
    "fast": "f32 by MPI, behind",
    "plain": "DDP",
    "fp16": "DDP, FP16 hook",
}
# Options of our program for each variant.
OURS = {"exact": "--exchange exact", "behind": "--exchange exact --overlap off", "fast": "--exchange fast --overlap off"}
SCALES = 8, 16, 32, 64, 128, 256, 512, 1024


def inside():
    """Starts this script again in a network namespace of its own."""
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *root, "--net", sys.executable, *sys.argv]
    sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode)


def ran(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more).stdout


def limit(megabits):
    """Limits the rate of the loopback; None removes the limit."""
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], stderr=subprocess.DEVNULL, check=False)
    if megabits:
        burst = max(65536, int(megabits * 125))
        ran(*f"tc qdisc add dev lo root tbf rate {megabits}mbit burst {burst} limit {burst + 4_000_000}".split())


def sent():
    """Returns the bytes that the loopback has sent."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    raise OSError("there is no loopback")


def steps_of(asked, ranks, way, steps):
    """Returns the seconds of each step of one of our trainings, the exchange times of its log, and the bytes at the
    interface."""
    mpi = "--oversubscribe --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo".split()
    training = f"train --width {asked.width} --batch {BATCH} --micro-batches {ranks} {OURS[way]} --threads 1".split()
    with tempfile.TemporaryDirectory() as place:
        before = sent()
        command = [asked.program, *training, "--iters", str(steps), "--checkpoint-every", "0", "--out", place]
        ran("mpirun", *mpi, "-n", str(ranks), *command)
        bytes_sent = sent() - before
        entries = [json.loads(line) for line in (Path(place) / "log.jsonl").read_text().splitlines()]
    exchanges = [entry.get("ranks", {"seconds": 0.0, "hidden": 0.0}) for entry in entries]
    return [entry["seconds"] for entry in entries], exchanges, bytes_sent


def ours(asked, ranks, way):
    """Returns the median seconds of a step and of its exchanges, and the bytes of a step."""
    *_, few = steps_of(asked, ranks, way, SHORT_STEPS)
    seconds, exchanges, many = steps_of(asked, ranks, way, SHORT_STEPS + asked.steps)
    # The first step is run twice.
    median = statistics.median
    spent = median(one["seconds"] for one in exchanges[SHORT_STEPS:])
    return median(seconds[SHORT_STEPS:]), spent, (many - few) / asked.steps


def turns(asked):
    """Runs with and without overlap in alternation, several times."""
    lines = ["| Mbit/s | ranks | step, ms | behind, ms | : | in exchanges, ms | of these hidden | behind, ms |", "|---|---|---|---|---|---|---|---|"]
    for rate in asked.rates:
        for ranks in asked.ranks:
            limit(rate * ranks)
            steps, spent, hidden = {"exact": [], "behind": []}, {"exact": [], "behind": []}, []
            for _ in range(asked.turns):
                for way in steps:
                    seconds, exchanges, _ = steps_of(asked, ranks, way, SHORT_STEPS + asked.steps)
                    steps[way] += seconds[SHORT_STEPS:]
                    spent[way] += [one["seconds"] for one in exchanges[SHORT_STEPS:]]
                    hidden += [one["hidden"] for one in exchanges[SHORT_STEPS:] if way == "exact"]
            median = lambda of: 1e3 * statistics.median(of)
            ahead, behind = median(steps["exact"]), median(steps["behind"])
            lines.append(
                f"| {rate} | {ranks} | {ahead:.0f} | {behind:.0f} | {ahead / behind:.2f} | {median(spent['exact']):.0f} "
                f"| {median(hidden):.0f} | {median(spent['behind']):.0f} |"
            )
            print(lines[-1], flush=True)
    limit(None)
    return lines


def torch(asked, ranks, hook):
    """Returns the median seconds of a step in PyTorch."""
    script = [asked.python, HERE / "torch_ranks.py", asked.width, BATCH // ranks, *IMAGE, SHORT_STEPS + asked.steps, hook]
    network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(ranks)}
    start = lambda rank: subprocess.Popen(
        [str(word) for word in script],
        env={**os.environ, **network, "RANK": str(rank)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    processes = [start(rank) for rank in range(ranks)]
    said = [process.communicate(timeout=1800)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise OSError(f"{script[1]} failed")
    return float(said[0])


def measured(asked, ranks):
    """Measures the variants one after another."""
    seconds, exchanges, volumes = {}, {}, {}
    for way in OURS:
        seconds[way], exchanges[way], volumes[way] = ours(asked, ranks, way)
    if asked.python:
        for hook in ("plain", "fp16"):
            seconds[hook] = torch(asked, ranks, hook)
    return seconds, exchanges, volumes


def tables(asked):
    ways = [way for way in WAYS if asked.python or way in OURS]
    lines = [
        f"| Mbit/s | ranks | {' | '.join(WAYS[way] + ', ms' for way in ways)} | exact : f32, exchanges | exact : f32, bytes |",
        "|---|---|" + "---|" * (len(ways) + 2),
    ]
    alone, latency = None, None
    for rate in asked.rates:
        for ranks in asked.ranks:
            limit(rate * ranks)
            seconds, exchanges, volumes = measured(asked, ranks)
            if ranks == 1:
                alone, ratios = seconds["exact"], ["–", "–"]
            else:
                ratios = [f"{exchanges['behind'] / exchanges['fast']:.2f}", f"{volumes['exact'] / volumes['fast']:.3f}"]
            cells = [f"{1e3 * seconds[way]:.0f}" for way in ways] + ratios
            lines.append(f"| {rate} | {ranks} | " + " | ".join(cells) + " |")
            print(lines[-1], f"  {volumes}", flush=True)
    limit(None)
    # Time of exchanges of very few values, which is the latency of messages.
    small = argparse.Namespace(**{**vars(asked), "width": 1})
    latency = ours(small, 2, "behind")[1]
    return [*lines, "", *model(asked, alone, latency)]


def model(asked, alone, latency):
    """Estimates the seconds of a step with more ranks than this machine has."""
    width = asked.width
    weights = 3 * width * 49 + 7 * width * width * 49 + 11 * width + 11 + 16 * width
    slots = 60
    lines = [
        f"By a model: {weights} weights, a part for each rank that takes {1e3 * (alone or 0):.0f} ms, {1e3 * latency:.2f} ms "
        "for the messages of two ranks (measured, without load); each further rank adds a message of half that, one after "
        "the other, to each exchange, in f32 as well; bytes go at the full rate and nothing overlaps; 64 bytes for each "
        f"of {slots} rows go from each rank to each.",
        "",
        "| ranks | " + " | ".join(f"{rate} Mbit/s exact, f32" for rate in asked.rates) + " |",
        "|---|" + "---|" * len(asked.rates),
    ]
    for ranks in SCALES:
        cells = []
        for rate in asked.rates:
            share, bits = (ranks - 1) / ranks, rate * 1e6 / 8
            fixed = (alone or 0) + latency * (1 + (ranks - 2) / 2) + 64 * slots * (ranks - 1) / bits
            cells.append(f"{fixed + 4 * weights * share / bits:.2f}, {fixed + 8 * weights * share / bits:.2f} s")
        lines.append(f"| {ranks} | " + " | ".join(cells) + " |")
    return lines


def measured_on():
    """Returns the machine, and the commit that is checked out."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = ran("git", "-C", HERE, "rev-parse", "--short", "HEAD").strip()
    return f"{len(models)} × {models[0].partition(': ')[2]}, commit {commit}; medians of steps."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("program", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--python", help="a Python that has torch")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rates", type=numbers, default=[100, 400, 10000], help="Mbit/s of each rank")
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--turns", type=int, default=0)
    asked = parser.parse_args()
    missing = [tool for tool in ("unshare", "ip", "tc", "mpirun") if not shutil.which(tool)]
    if missing:
        sys.exit(f"there is no {', '.join(missing)}")
    if not os.environ.get(INSIDE):
        inside()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    ran(*"ip link set lo mtu 1500 up".split())
    try:
        lines = turns(asked) if asked.turns else tables(asked)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.stderr}")
    print("\n".join(lines))
    if asked.record:
        before, _, rest = GUIDE.read_text().partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        GUIDE.write_text(f"{before}{MARKS[0]}\n{measured_on()}\n\n" + "\n".join(lines) + f"\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
