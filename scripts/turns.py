"""Processes that answer line by line, so that two of them can take turns: ours and those that it is compared with."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROFILE = os.environ.get("PROFILE", "measured")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def build(*arguments):
    """Returns the path of the program that cargo builds from this target."""
    command = ["cargo", "build", "--profile", PROFILE, "--quiet", *arguments, "--message-format=json"]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [one["executable"] for one in map(json.loads, said.splitlines()) if one.get("executable")][-1]


class Turns:
    """A process in which something runs whenever a line asks for it; a line of JSON is the answer."""

    def __init__(self, command, **more):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)

    def read(self):
        """The next answer, or None where the process has ended well."""
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        if self.process.wait():
            self.ended()
        return None

    def ended(self):
        sys.exit(f"the program ended: {' '.join(map(str, self.process.args))}")

    def say(self, line):
        print(line, file=self.process.stdin, flush=True)

    def ask(self, line):
        self.say(line)
        return self.read() or self.ended()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
