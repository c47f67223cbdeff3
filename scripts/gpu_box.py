#!/usr/bin/env python3
"""Everything that a visit to a GPU needs, in one folder and one archive of it: a machine there may have a driver and
nothing else.

usage: scripts/gpu_box.py FOLDER [--arch 90 ...] [--data DIRECTORY] [--quick]

Builds and strips tests, benchmarks and programs of the CUDA and wgpu backends, compiles all kernels ahead of time, and
puts the data that the phases train on beside them; FOLDER.tar.gz is what travels. There: FOLDER/run.sh [PHASE ...],
which writes FOLDER/out; here again: scripts/gpu_box/read.py FOLDER/out writes docs/gpu.md.

Tests and programs are those of the profile `tested`, and so is wgpu's benchmark, which goes by the device's clock. The
benchmark of CUDA times whole steps too, with what the host does in them: it is a release build, which takes longer;
with --quick it is not.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import nvidia

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Programs by package and target, and what they are called in the box.
PROGRAMS = {
    ("gradscale-cuda", "conformance"): "cuda-conformance",
    ("gradscale-cuda", "gpu"): "cuda-tests",
    ("gradscale-cuda", "gradscale-cuda"): "gradscale-cuda",
    ("gradscale-wgpu", "conformance"): "wgpu-conformance",
    ("gradscale-wgpu", "tiles"): "wgpu-tiles",
    ("gradscale-wgpu", "wgpu"): "wgpu-bench",
    ("gradscale-cli", "gradscale"): "gradscale",
}
BENCHES = {("gradscale-cuda", "cuda"): "cuda-bench"}
# What lies under the directory of data, and is trained on.
DATA = ["fashion-mnist-10k"]
# A machine that is lent may take so much.
MOST = 60 << 20


# The loader of Vulkan and what NVIDIA's Vulkan driver is linked to, which a machine that has the driver may lack; and where
# they may be.
VULKAN = [f"lib{name}.so.{major}" for name, major in (("vulkan", 1), ("GLdispatch", 0), ("GLX", 0), ("EGL", 1), ("GL", 1))]
PLACES = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"]


# Libraries that every machine with glibc has; all else is brought along or asked for at run time.
USUAL = {"linux-vdso", "ld-linux-x86-64", "ld-linux-aarch64", "libc", "libdl", "libgcc_s", "libm", "libpthread", "librt"}


def lacks(path):
    """Libraries that a program wants and a bare machine may not have."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    names = {line.split()[0].rsplit("/", 1)[-1] for line in said.splitlines() if ".so" in line}
    return sorted(name for name in names if name.split(".so")[0] not in USUAL)


def build(wanted, profile, arguments):
    """Paths of some programs."""
    command = ["cargo", "build", "--locked", "--profile", profile, "--message-format=json", "--quiet", *arguments]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in said.splitlines():
        one = json.loads(line)
        if not one.get("executable"):
            continue
        package, target = one["package_id"].split("#")[-1].split("@")[0], one["target"]
        # Of a program there are its own tests too.
        if "bin" in target["kind"] and one["profile"]["test"]:
            continue
        name = wanted.get((package, target["name"]))
        if name:
            found[name] = one["executable"]
    missing = set(wanted.values()) - set(found)
    if missing:
        sys.exit(f"not built: {', '.join(sorted(missing))}")
    return found


def programs(quick):
    """Paths of all programs."""
    chosen = ["-p", "gradscale-cuda", "-p", "gradscale-wgpu", "-p", "gradscale-cli"]
    chosen += ["--features", "gradscale-cli/cuda,gradscale-cli/wgpu"]
    named = ["--bin", "gradscale", "--bin", "gradscale-cuda", "--bench", "wgpu"]
    named += [word for test in ("conformance", "gpu", "tiles") for word in ("--test", test)]
    found = build(PROGRAMS, "tested", chosen + named)
    bench = ["-p", "gradscale-cuda", "--bench", "cuda"]
    # In its own profile nothing is shared with the others; in theirs, dependencies are, with the same features.
    return found | build(BENCHES, *(("tested", chosen + ["--bench", "cuda"]) if quick else ("release", bench)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="no release build")
    parser.add_argument("--arch", nargs="+", default=["90"], help="compute capabilities to compile for")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("GRADSCALE_DATA"))
    asked = parser.parse_args()
    folder = asked.folder
    if folder.exists():
        parser.error(f"{folder} is there already")
    built = programs(asked.quick)
    (folder / "bin").mkdir(parents=True)
    for name, path in built.items():
        shutil.copy(path, folder / "bin" / name)
        subprocess.run(["strip", folder / "bin" / name], check=True)
        if missing := lacks(folder / "bin" / name):
            sys.exit(f"{name} needs {', '.join(missing)}, which a bare machine lacks; was it built with other features meanwhile?")
    (folder / "lib").mkdir()
    for name in VULKAN:
        if found := next((f"{place}/{name}" for place in PLACES if os.path.exists(f"{place}/{name}")), None):
            shutil.copy(found, folder / "lib")
        else:
            print(f"without {name}, which is not here: Vulkan may find no driver there", file=sys.stderr)
    cubins = folder / "bin/cubins"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvidia.libraries())}
    subprocess.run([folder / "bin/gradscale-cuda", "cubins", cubins, *asked.arch], check=True, env=environment)
    for name in DATA:
        if asked.data and (asked.data / name).is_dir():
            shutil.copytree(asked.data / name, folder / "data" / name)
        else:
            print(f"without {name}: --data names no directory that has it", file=sys.stderr)
    shutil.copy(ROOT / "scripts/gpu_box/run.sh", folder)
    shutil.copy(ROOT / "backend-cuda/benches/cuda/peers.py", folder)
    describe = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    (folder / "commit").write_text(describe.stdout)
    # Copies of what may not be written to stay so otherwise, and could not be removed.
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    archive = folder.with_name(folder.name + ".tar.gz")
    subprocess.run(["tar", "--create", "--gzip", "--file", archive, "--directory", folder.parent, folder.name], check=True)
    size = archive.stat().st_size
    print(f"{archive}: {size / 2**20:.1f} MiB{'' if size < MOST else ', more than a lent machine may take'}")
    sys.exit(0 if size < MOST else 1)


if __name__ == "__main__":
    main()
