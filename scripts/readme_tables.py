#!/usr/bin/env python3
"""Trains SegNet on CamVid by all methods and writes the tables into README.md.

usage: scripts/readme_tables.py DIRECTORY_OF_CAMVID_90x120

Three seeds of each: an hour on two cores. The data are for non-commercial research; nothing of them gets into the tables.
"""
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMON = ["--width", "16", "--batch", "12", "--iters", "600", "--seeds", "0,1,2"]
RUNS = [["--methods", "fp32,fp16,fixed:128,dynamic,gs"], ["--methods", "fp32,fp16,gs", "--pixels", "batch"]]


def main():
    (data,) = sys.argv[1:]
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    # Built once, so that all runs are of one commit.
    program = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "release", "gradscale").resolve()
    begin, end = "<!-- camvid -->", "<!-- /camvid -->"
    tables = []
    for run in RUNS:
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([program, "compare", "--data", data, "--out", out] + COMMON + run, check=True)
            tables.append(shortened(pathlib.Path(out, "table.md").read_text()))
    day = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    note = f"Written by `scripts/readme_tables.py` on {day}: means and standard deviations over seeds.\n"
    readme = ROOT / "README.md"
    text = readme.read_text()
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    readme.write_text(head + begin + "\n" + "\n".join(tables) + "\n" + note + end + tail)


def shortened(table):
    """Title, verdict, table and circumstances, without the drawing."""
    title, rest = table.split("\n", 1)
    before, _, after = rest.split("```")
    return "**" + title.removeprefix("# ") + "**\n" + before.rstrip() + "\n\n" + after.strip() + "\n"


main()
