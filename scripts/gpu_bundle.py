#!/usr/bin/env python3
"""Builds everything that a run on a machine with a GPU needs, as one folder and one archive. That machine needs only a
driver.

usage: scripts/gpu_bundle.py FOLDER [--phases PHASE ...] [--arch 90 ...] [--data DIRECTORY] [--packages DIRECTORY]
           [--burn DIRECTORY] [--quick]

The folder gets the stripped tests, benchmarks and programs that the phases need (scripts/gpu_bundle/phases.tsv), kernels
compiled ahead of time, the wheel of the Python package, and the data on which phases train. FOLDER.tar.gz is the archive
to copy. There: `FOLDER/run.sh --within 560`. Here again: `scripts/gpu_bundle/record.py FOLDER/out` adds the results to
docs/gpu and writes docs/gpu.md.

Tests and programs are built in the profile `tested`. CUDA's benchmark times whole steps and the host's share of them, so
it is built in the profile `measured`, which takes longer; with --quick it is not.

The machine may have PyTorch but not TRL, and no network. --packages takes wheels of what it lacks, for its version of Python:
`pip download --no-deps --only-binary :all: --python-version 3.12 --dest DIRECTORY trl peft transformers accelerate …`. Those that
the machine has are used before them.

The phase `burn` measures burn's products and a training step on the adapter that wgpu's phases use. --burn names a directory
outside this repository in which cargo fetches and builds its program, once with kernels as WGSL and once as SPIR-V.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import nvidia

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "scripts/gpu_bundle"
sys.path.insert(0, str(SOURCES))
import phases  # noqa: E402
import record  # noqa: E402

# Package, target and kind of each program of the bundle.
PROGRAMS = {
    "cuda-conformance": ("gradscale-cuda", "conformance", "test"),
    "cuda-tests": ("gradscale-cuda", "gpu", "test"),
    "gradscale-cuda": ("gradscale-cuda", "gradscale-cuda", "bin"),
    "cuda-bench": ("gradscale-cuda", "cuda", "bench"),
    "wgpu-conformance": ("gradscale-wgpu", "conformance", "test"),
    "wgpu-tiles": ("gradscale-wgpu", "tiles", "test"),
    "wgpu-bench": ("gradscale-wgpu", "wgpu", "bench"),
    "gradscale": ("gradscale-cli", "gradscale", "bin"),
}
# Programs of the template scripts/gpu_bundle/burn, with the features that choose their kernels.
BURN = {"burn-wgsl": [], "burn-spirv": ["--features", "vulkan"]}
# Files of phases that Python runs, besides run.sh. The table marks them with `python:` before their names.
SCRIPTS = {
    "python:peers": ["backend-cuda/benches/cuda/peers.py", "backend-cuda/benches/odd.csv"],
    "python:networks": [
        "backend-cuda/benches/cuda/networks.py", "backend-cuda/benches/cuda/peers.py", "backend-cuda/benches/networks.csv",
    ],
    "python:trl": ["scripts/gpu_bundle/trl_phase.py", "python/examples/trl_sft.py"],
    "python:natural": [
        "scripts/natural/gpu.py", "scripts/natural/loops.py", "scripts/natural/bad_image.py",
        "scripts/natural/short_recordings.py", "scripts/natural/rare_reward.py", "python/examples/one_bad_image.py",
    ],
}
# Files that the phases of the Python package need besides its wheel, and their destinations.
PYTHON_TESTS = [
    *((f"python/tests/{name}", f"tests/{name}") for name in
      ["conftest.py", "test_torch_cuda.py", "test_torch_modules.py", "torch_models.py", "cpu_torch.py"]),
    ("python/benches/torch_cuda.py", "torch_cuda.py"),
]
# A machine that is used for minutes takes an archive of at most this size.
MAX_ARCHIVE_BYTES = 60 << 20
# The Vulkan loader and the libraries that NVIDIA's Vulkan driver is linked to: a machine that has the driver may lack them.
VULKAN = [f"lib{name}.so.{major}" for name, major in (("vulkan", 1), ("GLdispatch", 0), ("GLX", 0), ("EGL", 1), ("GL", 1))]
LIBRARY_FOLDERS = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"]
# Libraries of glibc and gcc, which every machine has.
SYSTEM_LIBRARIES = {"linux-vdso", "ld-linux-x86-64", "ld-linux-aarch64", "libc", "libdl", "libgcc_s", "libm", "libpthread", "librt"}


def missing_libraries(path):
    """Libraries that a program needs and a bare machine may lack."""
    printed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    names = {line.split()[0].rsplit("/", 1)[-1] for line in printed.splitlines() if ".so" in line}
    return sorted(name for name in names if name.split(".so")[0] not in SYSTEM_LIBRARIES)


def build(names, profile, arguments):
    """Builds programs; returns their paths by name."""
    command = ["cargo", "build", "--locked", "--profile", profile, "--message-format=json", "--quiet", *arguments]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in printed.splitlines():
        message = json.loads(line)
        if not message.get("executable"):
            continue
        package, target = message["package_id"].split("#")[-1].split("@")[0], message["target"]
        # A program's own unit tests have its name, too.
        if "bin" in target["kind"] and message["profile"]["test"]:
            continue
        for name in names:
            if PROGRAMS[name][:2] == (package, target["name"]) and PROGRAMS[name][2] in target["kind"]:
                found[name] = message["executable"]
    if missing := set(names) - set(found):
        sys.exit(f"not built: {', '.join(sorted(missing))}")
    return found


def build_programs(names, is_quick):
    """Builds the programs of the chosen phases."""
    ordinary = [name for name in names if is_quick or name != "cuda-bench"]
    found = {}
    if ordinary:
        packages = sorted({PROGRAMS[name][0] for name in ordinary})
        arguments = [word for package in packages for word in ("-p", package)]
        if "gradscale-cli" in packages:
            arguments += ["--features", "gradscale-cli/cuda,gradscale-cli/wgpu"]
        for kind in ("bin", "test", "bench"):
            targets = sorted({PROGRAMS[name][1] for name in ordinary if PROGRAMS[name][2] == kind})
            arguments += [word for target in targets for word in (f"--{kind}", target)]
        found = build(ordinary, "tested", arguments)
    if "cuda-bench" in names and not is_quick:
        found |= build(["cuda-bench"], "measured", ["-p", "gradscale-cuda", "--bench", "cuda"])
    return found


def add_programs(folder, built):
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name, path in built.items():
        shutil.copy(path, folder / "bin" / name)
        subprocess.run(["strip", folder / "bin" / name], check=True)
        if missing := missing_libraries(folder / "bin" / name):
            sys.exit(
                f"{name} needs {', '.join(missing)}, which a bare machine lacks; "
                "was it built with other features at the same time?"
            )


def add_vulkan(folder):
    (folder / "lib").mkdir()
    for name in VULKAN:
        if found := next((f"{place}/{name}" for place in LIBRARY_FOLDERS if os.path.exists(f"{place}/{name}")), None):
            shutil.copy(found, folder / "lib")
        else:
            print(f"without {name}, which is not on this machine: Vulkan may find no driver there", file=sys.stderr)


def add_wheel(folder):
    """Builds the wheel of the Python package. Without maturin its phases report that the wheel is missing."""
    python = ROOT / "target/python-package/bin/python"
    python = str(python) if python.exists() else sys.executable
    if subprocess.run([python, "-m", "maturin", "--version"], capture_output=True).returncode:
        sys.exit("no maturin: run python/test.sh --fetch first, or choose phases without the Python package")
    command = [python, "-m", "maturin", "build", "--quiet", "--locked", "--profile", "tested", "--strip"]
    subprocess.run([*command, "--manifest-path", "python/Cargo.toml", "--out", folder / "wheel"], cwd=ROOT, check=True)
    (folder / "tests").mkdir()
    for source, target in PYTHON_TESTS:
        shutil.copy(ROOT / source, folder / target)


def add_burn(folder, directory):
    """Builds burn's programs in a directory, where a later bundle finds what was built."""
    directory = directory.resolve()
    if directory.is_relative_to(ROOT):
        sys.exit(f"{directory} is in this repository: cargo would take burn's program for a part of it")
    source = directory / "burn-gpu"
    shutil.copytree(ROOT / "scripts/gpu_bundle/burn", source, dirs_exist_ok=True)
    found = {}
    for name, features in BURN.items():
        command = ["cargo", "build", "--release", "--quiet", "--target-dir", directory / "target", *features]
        subprocess.run(command, cwd=source, check=True)
        found[name] = shutil.copy(directory / "target/release/peer-burn-gpu", directory / name)
    add_programs(folder, found)


def add_packages(folder, directory):
    """Unpacks wheels for the phase torch-trl, beside which the machine's own packages come first."""
    wheels = sorted(directory.glob("*.whl"))
    if not wheels:
        sys.exit(f"{directory} has no wheels: fetch some with pip download")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "packages")


def add_cubins(folder, architectures):
    """Compiles all kernels ahead of time with the compiler of this build."""
    with tempfile.TemporaryDirectory() as scratch:
        program = folder / "bin/gradscale-cuda"
        if not program.exists():
            program = shutil.copy(build(["gradscale-cuda"], "tested", ["-p", "gradscale-cuda", "--bin", "gradscale-cuda"])["gradscale-cuda"], scratch)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(nvidia.libraries())}
        subprocess.run([program, "cubins", folder / "bin/cubins", *architectures], check=True, env=environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--phases", nargs="+", metavar="PHASE", help="only what these phases need")
    parser.add_argument("--quick", action="store_true", help="no build in the profile measured")
    parser.add_argument("--arch", nargs="+", default=["90"], help="compute capabilities to compile kernels for")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("GRADSCALE_DATA"))
    parser.add_argument("--burn", type=pathlib.Path, help="directory in which burn's program is built, for the phase burn")
    parser.add_argument("--packages", type=pathlib.Path, help="wheels of TRL and of what it needs, for the phase torch-trl")
    options = parser.parse_args()
    folder, table = options.folder, phases.load()
    if unknown := set(options.phases or []) - set(table):
        parser.error(f"{', '.join(sorted(unknown))}: no such phase; the phases are {', '.join(table)}")
    if folder.exists():
        parser.error(f"{folder} exists")
    chosen = [phase for phase in table.values() if phase.name in (options.phases or table)]
    needs = {need for phase in chosen for need in phase.programs}
    add_programs(folder, build_programs([name for name in PROGRAMS if name in needs], options.quick))
    if options.burn:
        add_burn(folder, options.burn)
    elif "burn" in needs:
        print("without burn: --burn names no directory in which its program is built", file=sys.stderr)
    if any(name.startswith("cuda") for name in needs):
        add_cubins(folder, options.arch)
    if any(name.startswith("wgpu") for name in needs) or needs & {"burn", "gradscale"}:
        add_vulkan(folder)
    if "wheel" in needs:
        add_wheel(folder)
    if options.packages:
        add_packages(folder, options.packages)
    for name in sorted(needs & set(SCRIPTS)):
        for source in SCRIPTS[name]:
            shutil.copy(ROOT / source, folder)
    for name in sorted({name for phase in chosen for name in phase.data}):
        if options.data and (options.data / name).is_dir():
            shutil.copytree(options.data / name, folder / "data" / name)
        else:
            print(f"without {name}: --data names no directory that has it", file=sys.stderr)
    shutil.copy(SOURCES / "run.sh", folder)
    lines = phases.TABLE.read_text().splitlines()
    kept = {phase.name for phase in chosen}
    (folder / "phases.tsv").write_text("\n".join([lines[0], *(line for line in lines[1:] if line.split("\t")[0] in kept)]) + "\n")
    describe = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    (folder / "commit").write_text(describe.stdout)
    (folder / "measured").write_text("".join(f"{name}\n" for name in record.measured_at_head(table)))
    # Copies of read-only files could not be removed.
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    archive = folder.with_name(folder.name + ".tar.gz")
    subprocess.run(["tar", "--create", "--gzip", "--file", archive, "--directory", folder.parent, folder.name], check=True)
    size = archive.stat().st_size
    is_small = size <= MAX_ARCHIVE_BYTES
    print(f"{archive}: {size / 2**20:.1f} MiB{'' if is_small else f', more than {MAX_ARCHIVE_BYTES >> 20} MiB: choose --phases'}")
    sys.exit(0 if is_small else 1)


if __name__ == "__main__":
    main()
