"""Lets torch be imported without the CUDA libraries that its wheel for Linux names, which are two gigabytes.

    python cpu_torch.py FOLDER_OF_TORCH

Linux's loader wants every library that is named, though on a machine without a GPU nothing of them is ever called. Where one
is missing this puts a library in its place that has its name, its versions and its functions, all of which answer "no
device" (100). Nothing of torch is changed. Needs a C compiler and binutils.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PREFIXES = "libcu", "libnv", "libnccl"


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def wanted(libraries):
    """Returns the symbols that the libraries need: {library: {version: functions}}."""
    named, homes, functions = set(), {}, set()
    for library in libraries:
        for line in said("readelf", "-dW", library):
            if "(NEEDED)" in line:
                named.add(line.split("[")[1].split("]")[0])
        home = ""
        for line in said("readelf", "-VW", library):
            words = line.split()
            if "File:" in words:
                home = words[words.index("File:") + 1]
            elif "Name:" in words and "Flags:" in words and home.startswith(PREFIXES):
                homes[words[words.index("Name:") + 1]] = home
        functions |= {line.split()[-1] for line in said("nm", "-D", "--undefined-only", library)}
    missing = {name: defaultdict(list) for name in named if name.startswith(PREFIXES)}
    for version, home in homes.items():
        missing[home][version] = []
    for function in sorted(functions):
        name, _, version = function.partition("@")
        if version.lstrip("@") in homes:
            version = version.lstrip("@")
            missing[homes[version]][version].append(name)
        elif not version and name.startswith(("cu", "nv", "nccl")):
            # For libraries without versions, any of these may contain the function.
            plain = next(library for library, versions in missing.items() if not any(versions))
            missing[plain][""].append(name)
    return missing


def stand_in(folder, library, versions):
    """An empty library of that name."""
    source = ""
    for name in sorted({name for names in versions.values() for name in names}):
        text = "String" in name or "Name" in name
        source += f'const char *{name}(void) {{ return "no CUDA here"; }}\n' if text else f"int {name}(void) {{ return 100; }}\n"
    script = "".join(f"{version} {{ global: {''.join(f'{name}; ' for name in names)}}};\n" for version, names in versions.items() if version)
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / library, f"-Wl,-soname,{library}"]
    path = folder / "stand_in.map"
    if script:
        path.write_text(script)
        command.append(f"-Wl,--version-script,{path}")
    subprocess.run(command, input=source, text=True, check=True)
    path.unlink(missing_ok=True)


def main():
    folder = Path(sys.argv[1]) / "lib"
    for library, versions in wanted(sorted(folder.glob("libtorch*.so")) + sorted(folder.glob("libc10*.so"))).items():
        if not (folder / library).exists():
            stand_in(folder, library, versions)


main()
