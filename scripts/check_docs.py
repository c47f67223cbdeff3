#!/usr/bin/env python3
"""Checks that documents refer to things that exist: links, anchors, paths and sections.

It reads every tracked Markdown file and the comments of every tracked source file, and reports

- a relative link whose file or anchor does not exist,
- a path in a document or comment that begins with a directory of this repository and names no file in it,
- a source file in backticks whose name no tracked file has,
- a citation of a section that its document does not have, for example "docs/specification.md, section 4".

If it finds nothing, it plants one fault of each kind in a copy in memory, and fails if one of them is not found. The last
line starts with PASSED or FAILED (exit status 1).
"""

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {".rs", ".cu", ".cuh", ".wgsl", ".py", ".sh", ".js", ".mjs", ".c", ".cpp", ".h", ".hpp", ".toml"}
# Comment markers of the languages above.
COMMENT = re.compile(r"^\s*(?://[/!]?|#!?|\*)\s?(.*)$|\s//[/!]?\s(.*)$")
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|(?:src|href)=\"([^\"]+)\"")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+{},*-]*)+")
# Extensions of our own file names: our documents name no foreign files of these kinds without a path.
OWN = (".rs", ".cu", ".cuh", ".wgsl")
SECTION = re.compile(r"([\w./-]+\.md), sections? (\d+(?:\.\d+)*)(?: and (\d+(?:\.\d+)*))?")
# Directories that builds and programs create. A path below one of them is not in the repository.
CREATED = {"target", "pkg", "dist", "node_modules", "build", ".git"}
# Pages that scripts write from results: their paths are those of the tree that was measured.
GENERATED = re.compile(r"^docs/(performance|workloads|eight-bits|science|gpu|against-pytorch)\.md$|^docs/decisions/.*-template\.md$")


class Repository:
    """The tracked files, with their texts."""

    def __init__(self, texts):
        self.texts = texts
        self.folders = {str(parent) for path in texts for parent in PurePosixPath(path).parents}
        self.names = {PurePosixPath(path).name for path in texts}
        self.top = {path.split("/")[0] for path in texts if "/" in path} - CREATED

    @classmethod
    def tracked(cls):
        """Reads the files that git tracks, and those that it would."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        texts = {}
        for path in listed.splitlines():
            if (ROOT / path).is_file():
                is_text = PurePosixPath(path).suffix in SOURCES | {".md"}
                texts[path] = (ROOT / path).read_text(errors="replace") if is_text else ""
        return cls(texts)

    def has(self, path):
        """Tells whether a file or directory, or a pattern with * and {a,b}, is there."""
        alternatives = re.fullmatch(r"(.*)\{([^{}]*)\}(.*)", path)
        if alternatives:
            before, choices, after = alternatives.groups()
            return all(self.has(before + choice.strip() + after) for choice in choices.split(","))
        path = path.rstrip("/")
        if "*" in path:
            pattern = re.compile(re.escape(path).replace(r"\*", "[^/]*"))
            return any(pattern.fullmatch(known) for known in [*self.texts, *self.folders])
        return path in self.texts or path in self.folders

    def near(self, path, document):
        """Tells whether a path exists from the root, or from a directory above the document."""
        return any(self.has(str(parent / path) if str(parent) != "." else path) for parent in PurePosixPath(document).parents)


def slugs(text):
    """Returns the anchors of a document's headings, as GitHub and mdBook form them, and explicit ones."""
    found, counts = set(), {}
    for line in prose(text):
        if heading := re.match(r"#{1,6}\s+(.*)", line[1]):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1].strip())
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            number = counts[slug] = counts.get(slug, -1) + 1
            found.add(slug if number == 0 else f"{slug}-{number}")
    return found | set(re.findall(r"(?:id|name)=\"([^\"]+)\"", text))


def prose(text):
    """Yields number and text of each line outside code blocks."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def comments(text):
    """Yields number and text of each comment, consecutive lines joined, since citations wrap."""
    start, parts, inside = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = COMMENT.match(line) or re.search(r"\s//\s(.*)$", line)
        words = next((group for group in match.groups() if group is not None), "") if match else None
        if words is not None and FENCE.match(words):
            inside, words = not inside, ""
        if words is None or inside:
            if parts:
                yield start, " ".join(parts)
            parts = []
            inside = inside and words is not None
            continue
        if not parts:
            start = number
        parts.append(words)


def sections(text):
    """Returns the numbers of a document's numbered headings."""
    return {match[1] for _, line in prose(text) if (match := re.match(r"#{1,6}\s+(\d+(?:\.\d+)*)\.?\s", line))}


def check_links(repository, document, number, line):
    """Yields the links of a line that lead nowhere."""
    for match in LINK.finditer(CODE.sub("", line)):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link) or "::" in link or "@" in link:
            continue
        file, _, anchor = link.partition("#")
        if file and not re.search(r"[./]", file):
            # A name of an item: rustdoc resolves it, and fails where it cannot.
            continue
        there = normal(PurePosixPath(document).parent / file) if file else document
        if not repository.has(there):
            yield f"{document}:{number}: the link {link} leads to no file"
        elif anchor and there.endswith(".md") and anchor not in slugs(repository.texts[there]):
            yield f"{document}:{number}: {there} has no heading #{anchor}"


def normal(path):
    """Resolves . and .. of a relative path."""
    parts = []
    for part in PurePosixPath(path).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


def check_paths(repository, document, number, text):
    """Yields the paths of a text that name nothing."""
    for match in PATH.finditer(re.sub(r"\]\([^)]*\)|<?https?://\S+|(?:src|href)=\"[^\"]*\"", " ", text)):
        path = match[0].rstrip(".,")
        before = match.string[match.start() - 1:match.start()]
        if path.split("/")[0] not in repository.top or before in ("/", "$", "~", "}", "-", ">", ":"):
            continue
        # Words joined by a slash count as a path only if they have an extension or are in backticks.
        quoted = before == "`" and match.string[match.end():match.end() + 1] == "`"
        if not quoted and not re.search(r"\.(md|rs|py|sh|cuh?|wgsl|csv|toml|json|svg|png|m?js)$", path):
            continue
        if not repository.near(path, document):
            yield f"{document}:{number}: there is no {path}"
    for match in CODE.finditer(text):
        name = match[1]
        if name.endswith(OWN) and re.fullmatch(r"[\w-]+\.\w+", name) and name not in repository.names:
            yield f"{document}:{number}: no file is called {name}"


def check_sections(repository, document, number, text):
    """Yields citations of sections that are not there."""
    for match in SECTION.finditer(text):
        path = match[1] if match[1] in repository.texts else normal(PurePosixPath(document).parent / match[1])
        if path not in repository.texts:
            yield f"{document}:{number}: there is no {match[1]}"
            continue
        for section in filter(None, match.groups()[1:]):
            if section not in sections(repository.texts[path]):
                yield f"{document}:{number}: {path} has no section {section}"


def check(repository):
    """Returns all findings."""
    found = []
    for document, text in sorted(repository.texts.items()):
        if document.endswith(".md"):
            for number, line in prose(text):
                found += check_links(repository, document, number, line)
                if not GENERATED.match(document):
                    found += check_paths(repository, document, number, line)
            # Citations may wrap.
            found += check_sections(repository, document, 1, " ".join(line for _, line in prose(text)))
        elif PurePosixPath(document).suffix in SOURCES and document != "scripts/check_docs.py":
            for number, words in comments(text):
                found += check_paths(repository, document, number, words)
                found += check_sections(repository, document, number, words)
    return found


# One fault of each kind: the document that has it, the text that is added, and a word of the finding.
FAULTS = [
    ("README.md", "\n[a](docs/nowhere.md)\n", "leads to no file"),
    ("README.md", "\n[a](docs/specification.md#nowhere)\n", "has no heading"),
    ("README.md", "\nSee `docs/nowhere.md`.\n", "there is no docs/nowhere.md"),
    ("README.md", "\nSee `nowhere.wgsl`.\n", "no file is called"),
    ("README.md", "\nSee docs/specification.md, section 99.\n", "has no section 99"),
    ("core/src/lib.rs", "\n// See docs/specification.md,\n// section 4.99.\n", "has no section 4.99"),
    ("core/src/lib.rs", "\n//! Written by scripts/nowhere.py.\n", "there is no scripts/nowhere.py"),
]


def selftest(repository):
    """Returns the planted faults that are not found."""
    missed, before = [], set(check(repository))
    for document, text, word in FAULTS:
        planted = Repository({**repository.texts, document: repository.texts[document] + text})
        if not any(word in finding for finding in set(check(planted)) - before):
            missed.append(f"planted in {document} and not found: {text.strip()}")
    return missed


def main():
    repository = Repository.tracked()
    found = check(repository)
    # The planted fault is tested only if everything else is clean, because it could otherwise hide behind a real fault.
    found = found or selftest(repository)
    for finding in found:
        print(finding)
    documents = sum(path.endswith(".md") for path in repository.texts)
    print(f"{'FAILED' if found else 'PASSED'}: {documents} documents and {len(repository.texts) - documents} other files, {len(found)} findings")
    sys.exit(bool(found))


# This check needs nothing to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    main()
