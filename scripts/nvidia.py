#!/usr/bin/env python3
"""NVIDIA's run-time compiler and disassembler, which need no GPU: prints the folder of libnvrtc.so.13.

Looked for in GRADSCALE_NVRTC, which is such a folder; else fetched from PyPI into target/nvrtc."""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-nvdisasm==13.5.37"]


def libraries():
    """The folder of the compiler."""
    given = os.environ.get("GRADSCALE_NVRTC")
    if given:
        return pathlib.Path(given)
    environment = ROOT / "target/nvrtc"
    found = lambda: next(environment.glob("lib/python3*/site-packages/nvidia/cu13/lib"), None)
    if found() is None or not (found().parent / "bin/nvdisasm").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        install = [environment / "bin/pip", "install", "--quiet", "--no-deps", *PACKAGES]
        subprocess.run(install, check=True, timeout=600)
    return found()


def disassembler():
    """The program nvdisasm."""
    beside = libraries().parent / "bin/nvdisasm"
    program = beside if beside.exists() else shutil.which("nvdisasm")
    return program or sys.exit("no nvdisasm, neither beside the compiler nor on the PATH")


if __name__ == "__main__":
    print(libraries())
