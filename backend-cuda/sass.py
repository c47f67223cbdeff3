#!/usr/bin/env python3
"""Counts the instructions of machine code that a thread needs for an element, without a GPU.

usage: backend-cuda/sass.py PROGRAM [--before COMMIT] [--show CASE]

PROGRAM is gradscale-cuda, whose kernels are counted: their text is compiled by NVIDIA's run-time compiler and disassembled
by nvdisasm (scripts/nvidia.py finds both). `sass.csv` gets the counts, which the bench's model reads, and README.md a
table of them, beside those of the kernels' files of another commit, which stay as they were counted unless --before asks
for them afresh.

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
# The commit that the table compares with.
BEFORE = "431419b"

# Kinds of instructions.
LOAD16 = r"LDG?\.E(\.\w+)*\.128\b"
STORE16 = r"STG?\.E(\.\w+)*\.128\b"
STORE8 = r"STG?\.E(\.\w+)*\.64\b"
PACK = r"F2FP\.(\S*F16|PACK)\S*|F2F\.F16\.\S*"
MOST = r"V?IMNMX3?\S*"
ATOMIC = r"ATOMS\S*"
ROOT = r"MUFU\.(RSQ|SQRT)\S*"
PRODUCT = r"HG?MMA\S*"
KEEP = r"STS\.64\b"
# What it does, module, kernel, elements of a round, so many of each kind, and kinds that are not there. A round of before
# had one group of eight where there are two now.
CASES = [
    ("cast", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8}, [MOST, ATOMIC]),
    ("cast and counts", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8, MOST: 14}, [ATOMIC]),
    ("cast and counts and histogram", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8, MOST: 14, ATOMIC: 16}, []),
    ("batch norm applied and counted", "norm", "norm_apply", 16, {LOAD16: 2, STORE16: 2, PACK: 8, MOST: 14}, [ATOMIC]),
    ("batch norm backward applied and counted", "norm_vjp", "norm_vjp_apply", 16, {LOAD16: 4, STORE16: 2, PACK: 8, MOST: 14}, [ATOMIC]),
    ("update by SGD with momentum", "optimize", "optimize", 4, {LOAD16: 3, STORE16: 2, STORE8: 1}, []),
    ("update by AdamW", "optimize", "optimize", 4, {LOAD16: 4, STORE16: 3, STORE8: 1, ROOT: 4}, []),
]
# Products: module (the first of these names that there is), architecture, what one thread stores of a tile: epilogue tiles,
# rounds of eight results for each. `sass.csv` has the end of the first on each architecture.
PRODUCTS = [
    (["wgmma_tma_gemm_128x256", "bulk_gemm_128x256"], 90, 8, 2),
    (["wgmma_tma_forward_128x64", "bulk_forward_128x64"], 90, 2, 2),
    (["wgmma_tma_weight_128x64", "bulk_weight_128x64"], 90, 2, 2),
    (["tensor_gemm_128x128"], 80, 2, 4),
    (["tensor_gemm_128x128"], 75, 2, 4),
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
    """The instructions of each kernel: (predicate, words, targets) in their order."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        said = subprocess.run([nvidia.disassembler(), "-c", file.name], check=True, capture_output=True, text=True)
    return instructions(said.stdout)


LABEL = re.compile(r"^\s*(\.L_\w+):")
LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?\w+)\s+)?([^;]+?)\s*;")
TARGET = re.compile(r"`\((\.L_\w+)\)")
# Of a branch by a table.
TABLE_TARGETS = re.compile(r"BRANCH_TARGETS ([^\"]+)")


def instructions(text):
    kernels, labels, now = {}, {}, None
    for line in text.splitlines():
        section = re.match(r"^\s*\.section\s+\.text\.(\w+)", line)
        if section:
            now = kernels.setdefault(section[1], [])
        elif now is not None and (label := LABEL.match(line)):
            labels[label[1]] = len(now)
        elif now is not None and (found := LINE.match(line)):
            table = TABLE_TARGETS.search(line)
            now.append((found[1], found[2], table[1].split(",") if table else TARGET.findall(found[2])))
    return {
        name: [(predicate, words, [labels[to] for to in targets if to in labels]) for predicate, words, targets in lines]
        for name, lines in kernels.items()
    }


def blocks_of(code):
    """Instructions that always follow one another, and which blocks may follow each block."""
    leaders, after = {0}, []
    for at, (predicate, words, targets) in enumerate(code):
        name = words.split()[0].split(".")[0]
        # A branch that all threads take or none names its predicate among the operands.
        sure = predicate is None and not re.search(r"^BRA\S*\s+!?U?P\d", words)
        # The assembler also leaves loops by calls of a label that never returns.
        jumps = name in ("BRA", "BRX") or name == "CALL" and targets
        to = [] if (jumps or name in ("EXIT", "RET", "JMP", "KILL")) and sure else [at + 1]
        if jumps:
            to.extend(targets)
        after.append([one for one in to if one < len(code)])
        if len(to) != 1 or to[0] != at + 1:
            leaders.update([*to, at + 1])
    starts = sorted(one for one in leaders if one < len(code))
    number = {start: i for i, start in enumerate(starts)}
    blocks = [range(start, end) for start, end in zip(starts, [*starts[1:], len(code)])]
    return blocks, [[number[to] for to in after[block[-1]]] for block in blocks]


def shortest(code, asked, none=(), start=None, ends=()):
    """The shortest way with so many of each kind on it and none of some, as instructions: a round, or from one block to
    one of some."""
    kinds = [(re.compile(kind), least) for kind, least in asked.items()]
    left_out = [re.compile(kind) for kind in none]
    blocks, after = blocks_of(code)
    words = lambda block: (code[at][1] for at in block)
    gains = [tuple(sum(bool(kind.match(word)) for word in words(block)) for kind, _ in kinds) for block in blocks]
    closed = [any(kind.match(word) for word in words(block) for kind in left_out) for block in blocks]
    enough, best, best_length = tuple(least for _, least in kinds), None, 1 << 30
    # Every round has the kind that is in the fewest blocks.
    rare = min(range(len(kinds)), key=lambda kind: sum(bool(gain[kind]) for gain in gains), default=0)
    starts = [at for at, gain in enumerate(gains) if gain[rare]] if start is None else [start]
    before = [[] for _ in blocks]
    for at, tos in enumerate(after):
        for to in tos:
            before[to].append(at)
    for first in starts:
        goals = {first} if start is None else {end for end in ends if end >= 0}
        final = {at for at in range(len(blocks)) if not after[at]} if -1 in ends else set()
        # How long it is from each block to the end at least: who cannot come there is not followed.
        left = {at: len(blocks[at]) for at in final}
        left.update({at: len(blocks[at]) for goal in goals for at in before[goal]})
        waiting = [(length, at) for at, length in left.items()]
        heapq.heapify(waiting)
        while waiting:
            length, at = heapq.heappop(waiting)
            if length > left[at]:
                continue
            for earlier in before[at]:
                if length + len(blocks[earlier]) < left.get(earlier, 1 << 30):
                    left[earlier] = length + len(blocks[earlier])
                    heapq.heappush(waiting, (left[earlier], earlier))
        if first not in left:
            continue
        here = (first, (0,) * len(kinds))
        queue, came, known = [(left[first], 0, here)], {}, {here: 0}
        while queue:
            bound, length, here = heapq.heappop(queue)
            at, seen = here
            if bound >= best_length:
                break
            if length > known[here] or closed[at]:
                continue
            now = tuple(min(have + gain, most) for have, gain, most in zip(seen, gains[at], enough))
            length += len(blocks[at])
            if now == enough and (at in final or goals.intersection(after[at])) and length < best_length:
                way = [at]
                while here in came:
                    here = came[here]
                    way.append(here[0])
                best, best_length = way[::-1], length
                continue
            for to in after[at]:
                there = (to, now)
                if to in left and length < known.get(there, 1 << 30):
                    known[there], came[there] = length, here
                    heapq.heappush(queue, (length + left[to], length, there))
    return best and [at for block in best for at in blocks[block]]


def product(code, arch, tiles, rounds):
    """Of a product: how many instructions its inner loop has, how many of them multiply, the most others between two of
    those, and how many its end has for each result."""
    loop = shortest(code, {PRODUCT: 1})
    multiplies = [at for at, line in enumerate(loop) if re.match(PRODUCT, code[line][1])]
    between = [b - a - 1 for a, b in zip(multiplies, multiplies[1:])]
    blocks, _ = blocks_of(code)
    block_of = lambda at: next(i for i, block in enumerate(blocks) if at in block)
    first, last = (block_of(loop[multiplies[i]]) for i in (0, -1))
    # Where tiles follow one another the way goes on to the next tile's products, else to the end of the kernel. What an
    # epilogue tile more adds is once round the loop over them; where that was unrolled, what the second adds.
    eight = lambda times: packed({STORE16: times, PACK: 4 * times, MOST: 7 * times}, arch)
    kept = {**eight(1), KEEP: 4 * rounds}
    inner, again = shortest(code, eight(1), [ATOMIC]), shortest(code, kept, [ATOMIC])
    one = shortest(code, kept if again else eight(1), [ATOMIC], last, {first, -1})
    two = None if again else shortest(code, eight(2), [ATOMIC], last, {first, -1})
    count = None
    if one and inner and (again or two):
        more = len(again) if again else len(two) - len(one)
        whole = len(one) - len(blocks[last]) + (tiles - 1) * more
        count = (whole + (rounds - 1) * tiles * len(inner)) / (8 * tiles * rounds)
    return len(loop), len(multiplies), max(between, default=0), count


def with_files(source, files):
    """The text of a module with other files in place of those of the same names."""
    head, *parts = re.split(r'(?m)^#line 1 "([^"]+)"\n', source)
    text = head
    for name, own in zip(parts[::2], parts[1::2]):
        text += f'#line 1 "{name}"\n{files(name, own)}'
    return text


def files_of(commit):
    """The kernels' files of a commit; one that was not there stays as it is."""

    def text(name, own):
        command = ["git", "show", f"{commit}:backend-cuda/src/kernels/{name}"]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else own

    return text


def packed(asked, arch):
    """The same where casts come one by one, not in pairs."""
    return {kind: least * (2 if kind == PACK and arch == 75 else 1) for kind, least in asked.items()}


def halved(asked):
    """What one group of eight asks for where there are two."""
    return {kind: least // 2 for kind, least in asked.items()}


def counted(code, elements, asked, none):
    """Instructions for each element."""
    way = shortest(code, asked, none)
    if way is None and elements == 16:
        elements, way = 8, shortest(code, halved(asked), none)
    return None if way is None else len(way) / elements


def number(count):
    return "" if count is None else f"{count:.2f}"


def write(rows, products, commit, old):
    """Both tables."""
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["what", "arch", "instructions", "before"])
        table.writerows(rows)
    lines = [f"Of {commit}; in brackets those of {old}, before values were observed eight at a time.", ""]
    lines += ["| instructions an element | " + " | ".join(f"sm_{arch}" for arch in ARCHITECTURES) + " |"]
    lines += ["|---|" + "---|" * len(ARCHITECTURES)]
    for what in dict.fromkeys(what for what, *_ in rows):
        here = {arch: (now, was) for name, arch, now, was in rows if name == what}
        cells = [f"{here[arch][0]} ({here[arch][1]})" if arch in here else "" for arch in ARCHITECTURES]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    lines += ["", "| product | inner loop | of them multiply | most others between two |", "|---|---|---|---|"]
    lines += [f"| {module}, sm_{arch} | {loop} | {count} | {most} |" for module, arch, loop, count, most in products]
    text = README.read_text()
    (first, rest), end = text.split(MARKS[0]), MARKS[1]
    README.write_text(first + MARKS[0] + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--before", metavar="COMMIT", help=f"counts those of this commit ({BEFORE} so far) afresh")
    parser.add_argument("--show", metavar="CASE", help="prints the round that was counted, on sm_90, and writes nothing")
    asked = parser.parse_args()
    # The compiler finds by its name what is loaded already.
    builtins = [ctypes.CDLL(str(path)) for path in nvidia.libraries().glob("libnvrtc-builtins.so.*")]
    library = ctypes.CDLL(str(nvidia.libraries() / "libnvrtc.so.13"))
    assert builtins, "the compiler's own functions lie beside it"
    old_files, rows, products = asked.before and files_of(asked.before), [], []
    was = {(row["what"], int(row["arch"])): row["before"] for row in csv.DictReader(TABLE.open(newline=""))}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for arch in ARCHITECTURES:
            subprocess.run([asked.program, "sources", folder / str(arch), str(arch)], check=True)

        def code_of(module, kernel, arch, files=None):
            text = (folder / str(arch) / f"{module}.cu").read_text()
            options = text.splitlines()[0].removeprefix("// ").split()
            kernels = disassembled(compiled(library, with_files(text, files) if files else text, options))
            return kernels[kernel] if kernel else next(iter(kernels.values()))

        def both(what, count, *which):
            old = was.get((what, which[-1]), "")
            if old_files:
                try:
                    old = number(count(code_of(*which, old_files)))
                except Failed:
                    # Files of now and of before do not fit together: what was counted when they did stays.
                    pass
            return [what, which[-1], number(count(code_of(*which))), old]

        for what, module, kernel, elements, kinds, none in CASES:
            if asked.show:
                if what == asked.show:
                    code = code_of(module, kernel, 90)
                    way = shortest(code, kinds, none) or []
                    print(*(f"{code[at][0] or '':6} {code[at][1]}" for at in way), sep="\n")
                continue
            for arch in ARCHITECTURES:
                count = lambda code: counted(code, elements, packed(kinds, arch), none)
                rows.append(both(what, count, module, kernel, arch))
                print(*rows[-1], flush=True)
        if asked.show:
            return
        ended = set()
        for names, arch, tiles, rounds in PRODUCTS:
            module = next((name for name in names if (folder / str(arch) / f"{name}.cu").exists()), None)
            if module is None:
                sys.exit(f"no module {' or '.join(names)} for sm_{arch}: PRODUCTS here names what is not there")
            loop, multiply, most, _ = product(code_of(module, None, arch), arch, tiles, rounds)
            products.append([module, arch, loop, multiply, most])
            print(*products[-1], flush=True)
            if arch not in ended:
                ended.add(arch)
                count = lambda code: product(code, arch, tiles, rounds)[3]
                rows.append(both("end of a product with counts", count, module, None, arch))
                print(*rows[-1], flush=True)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
    write(rows, products, commit.stdout.strip(), asked.before or BEFORE)


if __name__ == "__main__":
    main()
