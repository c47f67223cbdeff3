#!/usr/bin/env python3
"""Checks what registries and docs.rs will show for each published crate.

  publish_metadata.py <METADATA          reads `cargo metadata --no-deps`, prints the crates in an order in which they can
                                         be published, and exits with 1 if something is missing
  publish_metadata.py --final <METADATA  the same, and refuses the placeholder of the repository's address
  publish_metadata.py --set URL          replaces the address of repository and homepage in every manifest
  publish_metadata.py --set URL PAGE     the same, with another address for the homepage

Each package has a limit of bytes, since every user downloads it, and its README stands alone: a relative link or picture
leads nowhere on docs.rs, and an item's name leads nowhere on a registry.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Slugs of the registry's categories that are used here: one that it does not know would be refused there.
CATEGORIES = {
    "api-bindings", "command-line-utilities", "development-tools::testing", "mathematics", "no-std", "science", "wasm"
}
# The address until the repository has one. Names under .invalid never resolve.
PLACEHOLDER = "https://repository.invalid/gradscale"
# Manifests that name the repository.
MANIFESTS = "Cargo.toml", "adapters/Cargo.toml", "python/pyproject.toml", "cli/pyproject.toml", "npm/package.json"
ADDRESS = re.compile(r"""^( *"?(repository|homepage)"?(?: =|:) )"(https://[^"]*)\"""", re.M)
# Largest package in bytes before compression: the engine, whose sources are 1.65 MB, has some room.
MAX_PACKAGE_BYTES = 2_000_000
# What users of a library do not need.
UNWANTED = re.compile(r"^(scripts|tests|benches|golden|\.ci|\.github)/|\.(png|svg|sh|py|csv|toml\.orig)$|^(deny|clippy|rustfmt)\.toml$")
# Files that cargo itself adds.
ADDED = {"Cargo.toml.orig", ".cargo_vcs_info.json", "Cargo.lock"}
LINK = re.compile(r"(?<!\\)\[[^\[\]]*\]\(([^()\s]+)\)|(?:src|href)=\"([^\"]+)\"")
# A name in brackets without an address, which only rustdoc resolves.
ITEM = re.compile(r"(?<!\\)\[`[^`\]]+`\](?![(\[:])")


def dead_links(text):
    """Returns links and pictures of a README that lead nowhere outside the repository."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = [one.group() for one in ITEM.finditer(prose)]
    prose = re.sub(r"`[^`\n]+`", "", prose)
    links = [one[1] or one[2] for one in LINK.finditer(prose)]
    return found + [link for link in links if not re.match(r"https://|#", link)]


def wrong(package, files, final):
    """Returns missing and wrong fields."""
    folder = Path(package["manifest_path"]).parent
    for name in "description", "license", "documentation", "rust_version", "repository", "homepage":
        if not package[name]:
            yield f"no {name}"
        elif final and package[name].startswith(PLACEHOLDER):
            yield f"{name} is the placeholder: scripts/publish_metadata.py --set URL"
    if not package["categories"] or set(package["categories"]) - CATEGORIES:
        yield f"categories {package['categories']}: known are {sorted(CATEGORIES)}"
    if not 1 <= len(package["keywords"]) <= 5:
        yield "the registry takes one to five keywords"
    for word in package["keywords"]:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,19}", word):
            yield f"keyword {word!r}"
    if "targets" not in ((package["metadata"] or {}).get("docs") or {}).get("rs", {}):
        yield "no targets in package.metadata.docs.rs"
    readme = package["readme"] or "README.md"
    for file in "LICENSE-APACHE", "LICENSE-MIT", readme:
        if file not in files:
            yield f"{file} is not packed"
    for file in files:
        if file not in ADDED and UNWANTED.search(file):
            yield f"{file} is packed, which no user needs: `include` in Cargo.toml"
    size = sum((folder / file).stat().st_size for file in files if (folder / file).is_file())
    if size > MAX_PACKAGE_BYTES:
        yield f"{size} bytes are packed, more than {MAX_PACKAGE_BYTES}"
    for feature in package["metadata"]["docs"]["rs"].get("features", []):
        if feature not in package["features"]:
            yield f"docs.rs is told of the feature {feature}, which there is not"
    text = (folder / readme).read_text()
    if not re.search(r"^```(rust|sh|c)", text, re.M):
        yield f"{readme} has no example"
    for link in dead_links(text):
        yield f"{readme}: {link} leads nowhere on the registry's page or on docs.rs"
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
    known = locked(ROOT / "Cargo.lock")
    for name, needs in locked(Path("Cargo.lock")).items():
        if gone := needs - known.get(name, needs):
            yield f"Cargo.lock: {name} has no {', '.join(sorted(gone))} any more (cargo update --workspace)"


def addresses():
    """Returns the addresses that the manifests name, as (manifest, field, address)."""
    return [(name, one[2], one[3]) for name in MANIFESTS for one in ADDRESS.finditer((ROOT / name).read_text())]


def disagreements():
    """Returns manifests that lack an address, or name another than the first manifest."""
    known = addresses()
    wanted = {field: address for name, field, address in known if name == MANIFESTS[0]}
    for name in MANIFESTS:
        found = {field: address for other, field, address in known if other == name}
        for field in "repository", "homepage":
            if found.get(field) != wanted.get(field) or field not in found:
                yield f"{name}: {field} is {found.get(field)}, and {wanted.get(field)} in {MANIFESTS[0]}"


def set_addresses(repository, homepage):
    """Replaces the addresses in every manifest."""
    for address in repository, homepage:
        if not re.fullmatch(r"https://[^\s\"]+", address):
            sys.exit(f"{address} is no https address")
    fields = {"repository": repository, "homepage": homepage}
    for name in MANIFESTS:
        path = ROOT / name
        text, count = ADDRESS.subn(lambda one: f'{one[1]}"{fields[one[2]]}"', path.read_text())
        path.write_text(text)
        print(f"{name}: {count} addresses")


def main():
    if sys.argv[1:2] == ["--set"] and len(sys.argv) in (3, 4):
        return set_addresses(sys.argv[2], sys.argv[-1])
    final = sys.argv[1:] == ["--final"]
    if sys.argv[1:] and not final:
        sys.exit("usage: publish_metadata.py [--final] <METADATA | --set REPOSITORY [HOMEPAGE]")
    packages = [one for one in json.load(sys.stdin)["packages"] if one["publish"] != []]
    bad = 0
    # First, as cargo mends the file in passing.
    for problem in [*outdated(), *disagreements()]:
        print(problem, file=sys.stderr)
        bad += 1
    for package in packages:
        list_files = ["cargo", "package", "--list", "--allow-dirty", "--quiet", "--package", package["name"]]
        files = subprocess.run(list_files, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        for problem in wrong(package, files, final):
            print(f"{package['name']}: {problem}", file=sys.stderr)
            bad += 1
    print(*ordered(packages))
    sys.exit(bad > 0)


main()
