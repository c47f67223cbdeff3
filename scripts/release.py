#!/usr/bin/env python3
"""What a release needs besides tests.

  release.py agree            prints manifests whose versions differ; exit status 1 if any
  release.py state            prints what else has to change before the version is tagged; exit status 1 if anything
  release.py version          prints the version of all packages
  release.py notes            prints what CHANGELOG.md says of this version
  release.py links README     turns a README's relative links into those of the repository at the version's tag, in place:
                              the page of a registry shows it without the files beside it
"""

import datetime
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKSPACE = "Cargo.toml"
# Manifests with a version of their own, and what stands before it.
VERSIONS = {
    WORKSPACE: r'^version = "',
    "adapters/Cargo.toml": r'^version = "',
    "core/firmware/Cargo.toml": r'^version = "',
    "npm/package.json": r'^  "version": "',
}
# Manifests that require our crates by version.
REQUIREMENTS = WORKSPACE, "adapters/Cargo.toml"
# Texts that change with a first release.
TEXTS = "README.md", "CHANGELOG.md", "cli/README.md", "npm/README.md", "python/README.md"
UNRELEASED = re.compile(r"\b(?:not|nothing)\b[^.\n]*\breleased\b", re.I)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^()\s]+)\)")
PICTURE = re.compile(r"(!)\[([^\[\]]*)\]\(([^()\s]+)\)")


def read(root, name):
    return (root / name).read_text()


def versions(root):
    """Returns the version that each manifest has."""
    return {name: found[1] if (found := re.search(before + r'([^"]*)"', read(root, name), re.M)) else None for name, before in VERSIONS.items()}


def version(root=ROOT):
    return versions(root)[WORKSPACE]


def section(root, number):
    """Returns the heading and text of a version in CHANGELOG.md."""
    found = re.search(rf"^## {re.escape(number)}\b([^\n]*)\n(.*?)(?=^## |\Z)", read(root, "CHANGELOG.md"), re.M | re.S)
    return (found[1].strip(), found[2].strip()) if found else (None, "")


def disagreements(root=ROOT):
    """Yields manifests with another version than the workspace's, or that require another of our crates."""
    number = version(root)
    for name, found in versions(root).items():
        if found != number:
            yield f"{name}: version {found}, and {number} in {WORKSPACE}"
    for name in REQUIREMENTS:
        for crate, required in re.findall(r'^(gradscale\S*) = \{ path = .*?version = "([^"]*)"', read(root, name), re.M):
            if required != number:
                yield f"{name}: {crate} is required at {required}, and has {number}"


def state(root=ROOT):
    """Yields what has to change before the version is tagged, with its file."""
    number = version(root)
    heading, text = section(root, number)
    date = re.fullmatch(r"\((\d{4}-\d{2}-\d{2})\)", heading or "")
    if heading is None or not text:
        yield f"CHANGELOG.md: no section of {number}"
    elif not date:
        yield f'CHANGELOG.md: "## {number} {heading}" has no date: "## {number} ({datetime.date.today()})"'
    else:
        try:
            datetime.date.fromisoformat(date[1])
        except ValueError:
            yield f"CHANGELOG.md: {date[1]} is no date"
    for name in TEXTS:
        for row, line in enumerate(read(root, name).splitlines(), 1):
            if found := UNRELEASED.search(line):
                yield f'{name}:{row}: "{found[0]}" is not true of a release'


def with_absolute_links(text, folder, repository, tag):
    """Returns a README whose relative links lead to the repository at a tag; `folder` is that of the README, from the root."""

    def absolute(picture, target):
        if re.match(r"[a-z]+:|#", target):
            return target
        path, mark, anchor = target.partition("#")
        kind = "raw" if picture else "blob"
        return f"{repository}/{kind}/{tag}/{posixpath.normpath(posixpath.join(folder, path))}{mark}{anchor}"

    def prose(part):
        part = PICTURE.sub(lambda one: f"![{one[2]}]({absolute(True, one[3])})", part)
        return LINK.sub(lambda one: one[0] if one[1] else f"[{one[2]}]({absolute(False, one[3])})", part)

    # Code stays as it is.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.M | re.S)
    return "".join(part if index % 2 else prose(part) for index, part in enumerate(parts))


def main():
    command = sys.argv[1:]
    if command in (["agree"], ["state"]):
        found = list(disagreements() if command == ["agree"] else state())
        print(*found, sep="\n", end="\n" if found else "")
        sys.exit(bool(found))
    elif command == ["version"]:
        print(version())
    elif command == ["notes"]:
        print(section(ROOT, version())[1])
    elif len(command) == 2 and command[0] == "links":
        path = Path(command[1]).resolve()
        repository = re.search(r'^repository = "([^"]*)"', read(ROOT, WORKSPACE), re.M)[1]
        folder = path.parent.relative_to(ROOT).as_posix()
        path.write_text(with_absolute_links(path.read_text(), folder, repository, f"v{version()}"))
    else:
        sys.exit("usage: release.py agree | state | version | notes | links README")


if __name__ == "__main__":
    main()
