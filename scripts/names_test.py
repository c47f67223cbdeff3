#!/usr/bin/env python3
"""Checks names and imports by the rules of CONTRIBUTING.md, section "Names", and prints each violation with its line.

1. A constant says its role and unit: none is named by a bare adjective, adverb or quantifier (`BARE_WORDS`).
2. A function is a verb with its object: none is called by a bare word of `BARE_FUNCTIONS`.
3. A type name has at most `MAX_DEFINITIONS` definitions outside tests, except names of roles (`ROLES`), which backends and
   tasks share on purpose.
4. Rust files do not import each other, directly or in a longer circle. Imports of a parent module are not counted, because
   a folder is one unit.
5. A type that every user meets stays small: `PUBLIC_FUNCTIONS` has the number of its public functions, which may only fall.

`KNOWN_BARE_NAMES`, `KNOWN_REPEATED_TYPES` and `KNOWN_CIRCLES` are the numbers of violations that are allowed. All are 0, so any
new one fails.

Prints PASSED or FAILED as its last line. `names_test.py FOLDER` checks another tree, `names_test.py --known` prints the known
violations too.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Words that name neither the limited quantity nor its unit. `ALL`, `ONE` and `ZERO` are absent, because Rust uses them
# for the variants of an enum and the numbers of a type.
BARE_WORDS = set("""
    ABSENT ACROSS AHEAD ALONE ALONG ANSWERS APART AROUND AWAKE BEFORE BEHIND BESIDE BROKEN CERTAIN CHOSEN CLEAN DEEP EACH
    ENOUGH FAR FARTHEST FEW FINISHED FIRST FITTING FREE FRESH FURTHER HARDLY JOINING KEPT KNOWN LARGE LARGEST LAST LEARNED
    LEAST LEFT LIKELY LISTEN LONG LONGER LONGEST LOOKS MANY MEANT MOST NAP NARROW NEAR NEVER NEXT NOTHING NOWHERE ODD OTHER
    OTHERS OUT OVER PALE PATIENCE PLAIN REACH RIGHT SEEN SHORT SHORTEST SHOWN SMALL SOME SPEAKING STILL TAKEN THERE TODAY
    TOGETHER TOLD TOO TRIED TURNED TWO UNDER USUAL WHEN WHOLE WIDE WIDEST
""".split())
BARE_FUNCTIONS = {"of", "one", "all", "some"}
MAX_DEFINITIONS = 3
# Names of a role that several crates or tasks implement, each in its own module or for its own trait.
ROLES = set("""
    Backend Batch Buffer Device Error Kind Loading Memory Operands Row Scratch Settings Shape Site State Status Store Table Task
""".split())
KNOWN_BARE_NAMES = 0
KNOWN_REPEATED_TYPES = 0
KNOWN_CIRCLES = 0
# Public functions of types in `src/`. One with more options is a field of `Pass`, `ProgramKind` or `TrainerOptions`, and not
# a further function: blocking and non-blocking forms then share it.
PUBLIC_FUNCTIONS = {"Trainer": 45, "NonBlocking": 14}

CONSTANT = re.compile(
    r"^\s*(?:pub(?:\([a-z: ]+\))? +)?(?:static |inline |__device__ |__constant__ )*"
    r"(?:const|static|override|constexpr(?: \w+)+?) +([A-Z][A-Z0-9_]*)\b",
    re.M,
)
PYTHON_CONSTANT = re.compile(r"^_*([A-Z][A-Z0-9]*)\b[^=\n]* = ", re.M)
FUNCTION = re.compile(r"\b(?:fn|def|function)\s+([A-Za-z_]\w*)\s*[(<]|^__device__[^\n=;]*?\b(\w+)\(", re.M)
TYPE = re.compile(r"^\s*(?:pub(?:\([a-z: ]+\))? +)?(?:struct|enum|trait|union|type) +([A-Z]\w*)", re.M)
PUBLIC_FUNCTION = re.compile(r"^    pub (?:const |async )*fn (\w+)", re.M)
MODULE_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{.*", re.M | re.S)


def source_files(root, *endings):
    """Tracked and new files with one of these endings, as paths relative to `root`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f"*.{end}" for end in endings)]
    listed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
    return sorted(path for path in set(listed.split("\n")) if path and (root / path).is_file())


def is_test(path):
    """Returns whether a path belongs to tests, benches or examples, whose names are only used there."""
    parts = Path(path).parts
    return parts[-1] == "tests.rs" or any(part in ("tests", "test", "benches", "examples", "golden", "firmware") for part in parts[:-1])


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def bare_constants(path, text):
    pattern = PYTHON_CONSTANT if path.endswith(".py") else CONSTANT
    for match in pattern.finditer(text):
        words = match.group(1).strip("_").split("_")
        if all(word in BARE_WORDS for word in words):
            yield f"{path}:{line_of(text, match.start(1))}: constant {match.group(1)} names neither role nor unit"


def without_comments(text):
    """The text with comments blanked, so that positions stay."""
    return re.sub(r"(//|#)[^\n]*", lambda match: " " * len(match.group(0)), text)


def bare_functions(path, text):
    for match in FUNCTION.finditer(without_comments(text)):
        name = match.group(1) or match.group(2)
        if name in BARE_FUNCTIONS:
            yield f"{path}:{line_of(text, match.start())}: function `{name}` is no verb with its object"


def repeated_types(texts):
    places = defaultdict(list)
    for path, text in texts.items():
        if path.endswith(".rs"):
            text = MODULE_TESTS.sub("", text)
            # A type within an `impl` is an associated type, which its trait names.
            for match in TYPE.finditer(text):
                if not match.group(0).startswith(" ") or " type " not in match.group(0):
                    places[match.group(1)].append(f"{path}:{line_of(text, match.start(1))}")
    for name, found in sorted(places.items()):
        if len(found) > MAX_DEFINITIONS and name not in ROLES:
            yield f"type {name} is defined {len(found)} times: {', '.join(found)}"


def use_paths(tree):
    """The paths of a use tree: `a::{b, c::d}` gives `a::b` and `a::c::d`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        yield tree.split(" as ")[0].strip()
        return
    head, inner = tree[:brace], tree[brace + 1 : tree.rindex("}")]
    depth, start = 0, 0
    for at, letter in enumerate(inner + ","):
        if letter in "{}":
            depth += 1 if letter == "{" else -1
        elif letter == "," and depth == 0:
            if inner[start:at].strip():
                for path in use_paths(inner[start:at]):
                    yield head + path
            start = at + 1


def public_functions(texts, name):
    """Names of the public functions in all `impl` blocks of a type that are not of a trait."""
    block = re.compile(rf"^impl(?:<[^{{]*>)? {name}\b(?:<[^{{]*>)? \{{\n(.*?)^\}}", re.M | re.S)
    return [function for text in texts for body in block.findall(text) for function in PUBLIC_FUNCTION.findall(body)]


class Crate:
    """Module tree of one crate: the file of each module, and the items that it re-exports by `pub use`."""

    def __init__(self, root, folder, paths):
        self.files = {}
        for path in paths:
            parts = list(Path(path).relative_to(folder).with_suffix("").parts)
            if parts[-1] in ("mod", "lib", "main"):
                self.files[tuple(parts[:-1])] = path
            else:
                self.files[tuple(parts)] = path
        self.module_of = {path: module for module, path in self.files.items()}
        self.uses = {}
        for module, path in self.files.items():
            text = MODULE_TESTS.sub("", (root / path).read_text())
            text = re.sub(r"//[^\n]*", "", text)
            found = []
            for public, tree in re.findall(r"^\s*(pub(?:\([a-z: ]+\))? +)?use ([^;]+);", text, re.M):
                found += [(bool(public), path) for path in use_paths(tree)]
            inline = re.findall(r"\b((?:crate|super)(?:::\w+)+)", re.sub(r"\buse [^;]+;", "", text))
            self.uses[module] = found + [(False, path) for path in inline]

    def resolve(self, module, path, depth=0):
        """The module whose file defines a path that `module` uses, or None for another crate."""
        parts = path.split("::")
        if parts[0] == "crate":
            at, parts = (), parts[1:]
        elif parts[0] in ("self", "super"):
            at = module
            while parts and parts[0] in ("self", "super"):
                at = at[:-1] if parts[0] == "super" else at
                parts = parts[1:]
        elif (*module, parts[0]) in self.files:
            at = module
        else:
            return None
        while parts and (*at, parts[0]) in self.files:
            at, parts = (*at, parts[0]), parts[1:]
        if parts and depth < 5:
            for _, used in self.uses.get(at, []):
                if used.split("::")[-1] == parts[0] and used != path:
                    found = self.resolve(at, used, depth + 1)
                    if found is not None and found != at:
                        return found
        return at

    def imports(self):
        graph = defaultdict(set)
        for module, used in self.uses.items():
            for _, path in used:
                target = self.resolve(module, path)
                related = target is None or module[: len(target)] == target or target[: len(module)] == module
                if not related and self.files[target] != self.files[module]:
                    graph[self.files[module]].add(self.files[target])
        return graph


def circles(graph):
    """Strongly connected components of more than one file (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def import_circles(root, paths):
    folders = {path[: path.index("src/") + 4] for path in paths if "src/" in path}
    for folder in sorted(folders):
        crate = Crate(root, folder, [path for path in paths if path.startswith(folder)])
        graph = crate.imports()
        for circle in circles(graph):
            edges = [f"{a} -> {b}" for a in circle for b in sorted(graph[a]) if b in circle]
            yield f"files import each other: {'; '.join(edges)}"


def violations(root, show_known):
    paths = source_files(root, "rs", "cu", "cuh", "hpp", "wgsl", "py", "js")
    texts = {path: (root / path).read_text() for path in paths if not is_test(path) and path != "scripts/names_test.py"}
    bare = [found for path, text in texts.items() for found in (*bare_constants(path, text), *bare_functions(path, text))]
    limited = [
        ("KNOWN_BARE_NAMES", KNOWN_BARE_NAMES, bare),
        ("KNOWN_REPEATED_TYPES", KNOWN_REPEATED_TYPES, list(repeated_types(texts))),
        ("KNOWN_CIRCLES", KNOWN_CIRCLES, list(import_circles(root, [path for path in texts if path.endswith(".rs")]))),
    ]
    for name, known, found in limited:
        if show_known or len(found) > known:
            yield from found
        if len(found) != known:
            yield f"scripts/names_test.py: {name} is {known}, and {len(found)} are there"
    engine = [text for path, text in texts.items() if path.startswith("src/")]
    for name, known in PUBLIC_FUNCTIONS.items():
        count = len(public_functions(engine, name)) if engine else known
        if count != known:
            yield f"scripts/names_test.py: PUBLIC_FUNCTIONS of {name} is {known}, and {count} are there"


def check_itself():
    """Each rule finds a planted violation and leaves a right name alone."""
    planted = "pub const MOST: usize = 1;\nconst MAX_ROWS: usize = 2;\npub(crate) fn of(x: u8) {}\nfn offer() {}\n"
    assert [found.split(": ")[1] for found in bare_constants("a.rs", planted)] == ["constant MOST names neither role nor unit"]
    assert len(list(bare_functions("a.rs", planted))) == 1
    assert len(list(bare_constants("a.py", "MOST = 1\nMAX_ROWS = 2\n_FAR = 3\n"))) == 2
    four = {f"{n}.rs": "struct Cut;\n" for n in range(4)}
    assert len(list(repeated_types(four))) == 1 and not list(repeated_types({"0.rs": four["0.rs"]}))
    assert list(use_paths("a::{b, c::{d, e}}")) == ["a::b", "a::c::d", "a::c::e"]
    blocks = "impl<B: Backend> Cut<B> {\n    pub fn a() {\n    }\n    fn b() {}\n    pub const fn c() {}\n}\nimpl fmt::Debug for Cut {\n}\n"
    assert public_functions([blocks, "impl Cutter {\n    pub fn d() {}\n}\n"], "Cut") == ["a", "c"]
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def main():
    check_itself()
    folders = [argument for argument in sys.argv[1:] if argument != "--known"]
    root = Path(folders[0]).resolve() if folders else ROOT
    found = list(violations(root, "--known" in sys.argv))
    print("\n".join(found))
    print(f"FAILED: {len(found)} names or imports" if found else "PASSED: names and imports")
    return bool(found)


# This check needs nothing to be fetched.
if __name__ == "__main__" and "--fetch" not in sys.argv:
    sys.exit(main())
