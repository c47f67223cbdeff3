#!/usr/bin/env python3
"""Counts the instructions of machine code that a thread needs for an element, without a GPU.

usage: backend-cuda/sass.py PROGRAM [--before COMMIT]

PROGRAM is gradscale-cuda, whose kernels are counted: their text is compiled by NVIDIA's run-time compiler and disassembled
by nvdisasm (scripts/nvidia.py finds both). `sass.csv` gets the counts, which the bench's model reads, and README.md a
table of them. With --before the kernels' files of that commit are counted too; without it, what was counted of them stays.

What is counted is the shortest way once round a kernel's inner loop on which there are so many loads, stores, packed
casts and maxima as the case asks for: these say which types it is, and whether values are observed. So rare blocks (small
values, large ones, factors of several parts) are left out, as they are on nearly all data, and what skips them is not.
"""
import argparse
import csv
import ctypes
import heapq
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
import nvidia

TABLE = HERE / "sass.csv"
README = HERE / "README.md"
MARKS = ["<!-- instructions: written by sass.py -->", "<!-- end of instructions -->"]
ARCHITECTURES = [75, 80, 90]

# Kinds of instructions.
LOAD16 = r"LDG?\.E(\.\w+)*\.128\b"
STORE16 = r"STG?\.E(\.\w+)*\.128\b"
STORE8 = r"STG?\.E(\.\w+)*\.64\b"
PACK = r"F2FP?\.F16(\.F32)?\.(PACK|F32|F16)\w*|F2FP\w*\.F16\S*|F2F\.F16\.F32\S*"
MOST = r"V?I(MNMX|MNMX3)\S*|VIMNMX\S*"
ATOMIC = r"ATOMS\S*"
# What is counted: module, kernel, what it does, elements of a round, and so many of each kind at least and at most. A round of before had
# one group of eight where there are two now.
CASES = [
    ("cast", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8}, [MOST, ATOMIC]),
    ("cast and counts", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8, MOST: 14}, [ATOMIC]),
    ("cast and counts and histogram", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8, MOST: 14, ATOMIC: 16}, []),
    ("batch norm applied and counted", "norm", "norm_apply", 16, {LOAD16: 2, STORE16: 2, PACK: 8, MOST: 14}, [ATOMIC]),
    ("batch norm backward applied and counted", "norm_vjp", "norm_vjp_apply", 16, {LOAD16: 4, STORE16: 2, PACK: 8, MOST: 14}, [ATOMIC]),
    ("update by SGD with momentum", "optimize", "optimize", 4, {LOAD16: 3, STORE16: 2, STORE8: 1}, []),
    ("update by AdamW", "optimize", "optimize", 4, {LOAD16: 4, STORE16: 3, STORE8: 1}, []),
]


class Failed(Exception):
    pass


def compiled(library, source, options):
    """Machine code of a text."""
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    words = [option.encode() for option in options]
    status = library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    size = ctypes.c_size_t()
    if status != 0:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise Failed(log.value.decode())
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, code)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


def disassembled(code):
    """The instructions of each kernel: (predicate, words, target) in their order."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        said = subprocess.run([nvidia.disassembler(), "-c", file.name], check=True, capture_output=True, text=True)
    return instructions(said.stdout)


LABEL = re.compile(r"^\s*(\.L_\w+):")
LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?\w+)\s+)?([^;]+?)\s*;")
TARGET = re.compile(r"`\((\.L_\w+)\)")


def instructions(text):
    kernels, labels, now = {}, {}, None
    for line in text.splitlines():
        section = re.match(r"^\s*\.section\s+\.text\.(\w+)", line)
        if section:
            now = kernels.setdefault(section[1], [])
        elif now is not None and (label := LABEL.match(line)):
            labels[label[1]] = len(now)
        elif now is not None and (found := LINE.match(line)):
            target = TARGET.search(found[2])
            now.append((found[1], found[2], target and target[1]))
    return {
        name: [(predicate, words, labels.get(target)) for predicate, words, target in lines]
        for name, lines in kernels.items()
    }


def ways(code):
    """Where each instruction may go on."""
    found = []
    for at, (predicate, words, target) in enumerate(code):
        name = words.split()[0].split(".")[0]
        # A branch that is taken always, or by all threads or none, names that predicate among its operands.
        sure = predicate is None and not re.search(r"^BRA\S*\s+!?U?P\d", words)
        after = [] if name in ("BRA", "EXIT", "RET", "BRX", "JMP", "KILL") and sure else [at + 1]
        if name == "BRA" and target is not None:
            after.append(target)
        found.append([one for one in after if one < len(code)])
    return found


def round_of(code, asked, none):
    """The instructions of the shortest round on which there are so many of each kind, and none of some."""
    kinds = [(re.compile(kind), least) for kind, least in asked.items()]
    left_out = [re.compile(kind) for kind in none]
    gains = [tuple(int(bool(kind.match(words))) for kind, _ in kinds) for _, words, _ in code]
    closed = [any(kind.match(words) for kind in left_out) for _, words, _ in code]
    after = ways(code)
    heads = {to for at, tos in enumerate(after) for to in tos if to <= at}
    enough, best = tuple(least for _, least in kinds), None
    for head in heads:
        start = (head, (0,) * len(kinds))
        queue, came = [(0, start)], {}
        known = {start: 0}
        while queue:
            length, here = heapq.heappop(queue)
            if length > known[here] or (best and length >= len(best)):
                continue
            at, seen = here
            if closed[at]:
                continue
            now = tuple(min(have + gain, most) for have, gain, most in zip(seen, gains[at], enough))
            for to in after[at]:
                if to == head and now == enough:
                    way, step = [at], here
                    while step in came:
                        step = came[step]
                        way.append(step[0])
                    best = way[::-1]
                there = (to, now)
                if to != head and length + 1 < known.get(there, 1 << 30):
                    known[there] = length + 1
                    came[there] = here
                    heapq.heappush(queue, (length + 1, there))
    return best and [code[at][1] for at in best]


def with_files(source, files):
    """The text of a module with other files in place of those of the same names."""
    head, *parts = re.split(r'(?m)^#line 1 "([^"]+)"\n', source)
    text = head
    for name, own in zip(parts[::2], parts[1::2]):
        text += f'#line 1 "{name}"\n{files(name, own)}'
    return text


def before(commit):
    def text(name, own):
        if name == "ptx.cuh" and False:
            return own
        done = subprocess.run(
            ["git", "show", f"{commit}:backend-cuda/src/kernels/{name}"], cwd=HERE, capture_output=True, text=True
        )
        return done.stdout if done.returncode == 0 else own

    return text


def halved(asked):
    """What one group of eight asks for where there are two."""
    return {kind: least // 2 for kind, least in asked.items()}


def counted(library, source, options, kernel, elements, asked, none):
    """Instructions for each element."""
    code = disassembled(compiled(library, source, options))[kernel]
    way = round_of(code, asked, none)
    if way is None and elements == 16:
        elements, way = 8, round_of(code, halved(asked), none)
    return None if way is None else len(way) / elements


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--show", metavar="CASE", help="prints the round that was counted, on sm_90")
    asked = parser.parse_args()
    library = ctypes.CDLL(str(nvidia.libraries() / "libnvrtc.so.13"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for arch in ARCHITECTURES:
            subprocess.run([asked.program, "sources", folder, str(arch)], check=True)
            for what, module, kernel, elements, kinds, none in CASES:
                text = (pathlib.Path(folder) / f"{module}.cu").read_text()
                options = text.splitlines()[0].removeprefix("// ").split()
                if asked.show:
                    if what == asked.show and arch == 90:
                        way = round_of(disassembled(compiled(library, text, options))[kernel], kinds, none)
                        print(*(way or ["no such round"]), sep="\n")
                    continue
                row = [counted(library, text, options, kernel, elements, kinds, none)]
                if asked.before:
                    old = with_files(text, before(asked.before))
                    row.append(counted(library, old, options, kernel, elements, kinds, none))
                rows.append((what, arch, row))
                print(what, arch, row, flush=True)


if __name__ == "__main__":
    main()
