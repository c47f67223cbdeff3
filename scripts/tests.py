#!/usr/bin/env python3
"""Runs all tests of the workspace, as many programs at a time as there are processors: most use but one.

What each prints comes when it has ended. The exit status is 1 if one failed.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

CARGO = ["cargo", "test", "--quiet", "--workspace", "--release", "--locked"]


def programs():
    """Path and package folder of each test program."""
    built = subprocess.run(
        [*CARGO, "--no-run", "--message-format=json"], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        one = json.loads(line)
        if one.get("executable") and one["profile"]["test"]:
            yield one["executable"], Path(one["manifest_path"]).parent


def run(program, folder):
    start = time.monotonic()
    done = subprocess.run(
        [program, "--nocapture"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return program, done, time.monotonic() - start


def main():
    failed = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for future in as_completed([pool.submit(run, *one) for one in programs()]):
            program, done, seconds = future.result()
            name = Path(program).name
            print(f"-- {name}, {seconds:.1f} s", flush=True)
            sys.stdout.buffer.write(done.stdout)
            sys.stdout.flush()
            if done.returncode != 0:
                failed.append(name)
    print("-- examples in the documentation", flush=True)
    if subprocess.run([*CARGO, "--doc"], check=False).returncode != 0:
        failed.append("examples in the documentation")
    if failed:
        sys.exit("FAILED: " + ", ".join(failed))


main()
