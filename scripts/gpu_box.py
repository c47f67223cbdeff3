#!/usr/bin/env python3
"""Everything that a visit to a GPU needs, in one folder and one archive of it: a machine there may have a driver and
nothing else.

usage: scripts/gpu_box.py FOLDER [--profile release|tested] [--arch 90 ...] [--data DIRECTORY]

Builds and strips tests, benchmarks and programs of the CUDA and wgpu backends, compiles all kernels ahead of time
(NVIDIA's run-time compiler is looked for in GRADSCALE_NVRTC, the folder of libnvrtc.so.13, else fetched from PyPI into
target/nvrtc), and puts the data that the phases train on beside them; FOLDER.tar.gz is what travels. There: FOLDER/run.sh
[PHASE ...], which writes FOLDER/out; here again: scripts/gpu_box/read.py FOLDER/out writes docs/gpu.md.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Programs by package and target, and what they are called in the box.
PROGRAMS = {
    ("gradscale-cuda", "conformance"): "cuda-conformance",
    ("gradscale-cuda", "gpu"): "cuda-tests",
    ("gradscale-cuda", "cuda"): "cuda-bench",
    ("gradscale-cuda", "gradscale-cuda"): "gradscale-cuda",
    ("gradscale-wgpu", "conformance"): "wgpu-conformance",
    ("gradscale-wgpu", "tiles"): "wgpu-tiles",
    ("gradscale-wgpu", "wgpu"): "wgpu-bench",
    ("gradscale-cli", "gradscale"): "gradscale",
}
# What lies under the directory of data, and is trained on.
DATA = ["fashion-mnist-10k"]
# A machine that is lent may take so much.
MOST = 60 << 20


def build(profile):
    """Paths of all programs."""
    command = ["cargo", "build", "--locked", "--profile", profile, "--message-format=json", "--quiet", "--bins", "--tests", "--benches"]
    command += ["-p", "gradscale-cuda", "-p", "gradscale-wgpu", "-p", "gradscale-cli", "--features", "gradscale-cli/cuda,gradscale-cli/wgpu"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = {}
    for line in said.splitlines():
        one = json.loads(line)
        if not one.get("executable"):
            continue
        package, target = one["package_id"].split("#")[-1].split("@")[0], one["target"]
        # Of a program there are its own tests too.
        if "bin" in target["kind"] and one["profile"]["test"]:
            continue
        name = PROGRAMS.get((package, target["name"]))
        if name:
            found[name] = one["executable"]
    missing = set(PROGRAMS.values()) - set(found)
    if missing:
        sys.exit(f"not built: {', '.join(sorted(missing))}")
    return found


def nvrtc():
    """The folder of NVIDIA's run-time compiler."""
    given = os.environ.get("GRADSCALE_NVRTC")
    if given:
        return pathlib.Path(given)
    environment = ROOT / "target/nvrtc"
    libraries = lambda: next(environment.glob("lib/python3*/site-packages/nvidia/cu13/lib"), None)
    if libraries() is None:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "--quiet", "--no-deps", "nvidia-cuda-nvrtc==13.0.88"], check=True)
    return libraries()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--arch", nargs="+", default=["90"], help="compute capabilities to compile for")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("GRADSCALE_DATA"))
    asked = parser.parse_args()
    folder = asked.folder
    if folder.exists():
        parser.error(f"{folder} is there already")
    programs = build(asked.profile)
    (folder / "bin").mkdir(parents=True)
    for name, path in programs.items():
        shutil.copy(path, folder / "bin" / name)
        subprocess.run(["strip", folder / "bin" / name], check=True)
    cubins = folder / "bin/cubins"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvrtc())}
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
