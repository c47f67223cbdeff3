#!/usr/bin/env python3
"""Checks the metadata that the registry and docs.rs will show for each published crate, and prints the crates' names in
the order in which they can be published. Reads `cargo metadata --no-deps` from standard input; exits with 1 if
something is missing.
which they can be. Reads `cargo metadata --no-deps` from its input; exits with 1 if something is missing."""

import json
import re
import subprocess
import sys
from pathlib import Path

# Slugs of the registry's categories that are used here: one that it does not know would be refused there.
CATEGORIES = {
    "api-bindings", "command-line-utilities", "development-tools::testing", "mathematics", "no-std", "science", "wasm"
}


def wrong(package, files):
    """Returns missing and wrong fields."""
    folder = Path(package["manifest_path"]).parent
    for name in "description", "license", "documentation", "rust_version":
        if not package[name]:
            yield f"no {name}"
    if not package["categories"] or set(package["categories"]) - CATEGORIES:
        yield f"categories {package['categories']}: known are {sorted(CATEGORIES)}"
    if not 1 <= len(package["keywords"]) <= 5:
        yield "the registry takes one to five keywords"
    for word in package["keywords"]:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,19}", word):
            yield f"keyword {word!r}"
    if "targets" not in ((package["metadata"] or {}).get("docs") or {}).get("rs", {}):
        yield "no targets in package.metadata.docs.rs"
    for file in "LICENSE-APACHE", "LICENSE-MIT", "README.md":
        if file not in files:
            yield f"{file} is not packed"
    for feature in package["metadata"]["docs"]["rs"].get("features", []):
        if feature not in package["features"]:
            yield f"docs.rs is told of the feature {feature}, which there is not"
    readme = folder / (package["readme"] or "README.md")
    if not re.search(r"^```(rust|sh|c)", readme.read_text(), re.M):
        yield "README.md has no example"
    for dependency in package["dependencies"]:
        # A dependency by path alone is dropped from the package, which is right for tests but not for dependencies of
        # users.
        if dependency["kind"] != "dev" and dependency.get("path") and dependency["req"] == "*":
            yield f"{dependency['name']} has no version"


def ordered(packages):
    """Each after those that it needs, by name and version."""
    waiting = {package["name"]: package for package in packages}
    while waiting:
        needs = lambda package: {d["name"] for d in package["dependencies"] if d["req"] != "*"} & waiting.keys()
        ready = [name for name, package in waiting.items() if not needs(package) - {name}]
        if not ready:
            sys.exit(f"these need each other: {', '.join(waiting)}")
        yield from ready
        for name in ready:
            del waiting[name]


def locked(path):
    """Returns the dependencies of each of our packages according to a lock file, by name."""
    ours = re.findall(r'^name = "(gradscale[^"]*)"\n(.*?)^(?=\[\[|\Z)', path.read_text(), re.M | re.S)
    return {name: set(re.findall(r'^ "([^" ]*)', text, re.M)) for name, text in ours if "source = " not in text}


def outdated():
    """Returns entries of a separate workspace's lock file that the crates of this workspace no longer need."""
    known = locked(Path(__file__).parent.parent / "Cargo.lock")
    for name, needs in locked(Path("Cargo.lock")).items():
        if gone := needs - known.get(name, needs):
            yield f"Cargo.lock: {name} has no {', '.join(sorted(gone))} any more (cargo update --workspace)"


def main():
    packages = [one for one in json.load(sys.stdin)["packages"] if one["publish"] != []]
    bad = 0
    # First, as cargo mends the file in passing.
    for problem in outdated():
        print(problem, file=sys.stderr)
        bad += 1
    for package in packages:
        list_files = ["cargo", "package", "--list", "--allow-dirty", "--quiet", "--package", package["name"]]
        files = subprocess.run(list_files, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        for problem in wrong(package, files):
            print(f"{package['name']}: {problem}", file=sys.stderr)
            bad += 1
    print(*ordered(packages))
    sys.exit(bad > 0)


main()
