#!/usr/bin/env python3
"""Kills ranks of a training at random moments, and resumes it with another number of ranks.

    killed.py PROGRAM [--kills 50] [--seed 0]

Starts a training of SegNet in 12 parts with some ranks. After a random time one of them gets SIGKILL. All others must
end within a time limit, with a line that names the rank, and every checkpoint must be intact. Another number of ranks
resumes the last one, until that many ranks were killed. At the end weights, optimizer and all other content of the
checkpoint must be those of a single undisturbed rank, byte for byte.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 20
WORLDS = (1, 2, 3, 4)
TRAIN = "--width 4 --batch 12 --micro-batches 12 --checkpoint-every 2 --threads 1".split()


def children(process):
    """The processes that this one has started."""
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(child) for child in file.read().split()]


def checkpoints(directory):
    return sorted(directory.glob("checkpoint-*.safetensors"))


def launch(program, ranks, arguments, said):
    """Starts ranks in a process group of their own, so that none is left running."""
    command = ["mpirun", "--oversubscribe", "-n", str(ranks), program, "train", *arguments]
    return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)


def begins(directory, arguments):
    return ["--resume", str(directory), *arguments] if checkpoints(directory) else [*TRAIN, *arguments, "--out", str(directory)]


def started(process, ranks):
    """The processes of all ranks, once they are there."""
    for _ in range(600):
        found = children(process.pid)
        if len(found) == ranks:
            return found
        time.sleep(0.05)
    sys.exit(f"FAILED: {ranks} ranks have not started within 30 s")


def kill_one(program, directory, steps, chance):
    """One training until its kill: ranks, the one that was killed, seconds before it and after."""
    ranks = chance.choice(WORLDS[1:])
    victim, delay = chance.randrange(ranks), chance.uniform(0.0, 3.0)
    with tempfile.TemporaryFile("w+") as said:
        process = launch(program, ranks, begins(directory, ["--iters", str(steps)]), said)
        found = started(process, ranks)
        time.sleep(delay)
        os.kill(found[victim], signal.SIGKILL)
        killed = time.monotonic()
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            sys.exit(f"FAILED: the others went on for {LIMIT} s after rank {victim} of {ranks} was killed")
        said.seek(0)
        words = said.read()
    if status == 0:
        sys.exit(f"FAILED: {ranks} ranks have ended well without rank {victim}")
    if f"process rank {victim} " not in words and f"rank {victim} " not in words:
        sys.exit(f"FAILED: no line names rank {victim} of {ranks}:\n{words}")
    return ranks, victim, delay, time.monotonic() - killed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "killed"
        done, longest, steps = 0, 0.0, 100_000
        while done < asked.kills:
            ranks, victim, delay, seconds = kill_one(asked.program, directory, steps, chance)
            done, longest = done + 1, max(longest, seconds)
            last = checkpoints(directory)[-1].name if checkpoints(directory) else "no checkpoint"
            print(f"{done}: rank {victim} of {ranks} after {delay:.1f} s; gone after {seconds:.1f} s; {last}", flush=True)
        last = int(checkpoints(directory)[-1].name.removeprefix("checkpoint-").removesuffix(".safetensors"))
        steps = last + 4
        for ranks, where in ((chance.choice(WORLDS), directory), (1, Path(place) / "whole")):
            with open(os.devnull, "w") as nothing:
                process = launch(asked.program, ranks, begins(where, ["--iters", str(steps)]), nothing)
                if process.wait(3600) != 0:
                    sys.exit(f"FAILED: {ranks} ranks to step {steps}")
        ends = [hashlib.sha256((where / f"checkpoint-{steps:06}.safetensors").read_bytes()).hexdigest() for where in (directory, Path(place) / "whole")]
        if ends[0] != ends[1]:
            sys.exit(f"FAILED: after {done} kills another checkpoint of step {steps}")
        print(f"{done} kills, the others gone after {longest:.1f} s at most; step {steps} is that of one rank: {ends[0][:16]}")


if __name__ == "__main__":
    main()
