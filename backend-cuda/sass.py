#!/usr/bin/env python3
"""Counts the instructions of machine code that a thread needs for an element, without a GPU.

usage: backend-cuda/sass.py PROGRAM [--before COMMIT] [--show CASE]

PROGRAM is gradscale-cuda, whose kernels are counted. NVIDIA's run-time compiler compiles their text, and nvdisasm
disassembles it (scripts/nvidia.py finds both). The counts are written to `sass.csv`, which the bench's model reads. A
table in docs/gpu-notes.md compares them with those of the kernels' files of another commit, which are kept unless
--before requests a new count.

Counted is the shortest path once through a kernel's inner loop that has the given numbers of loads, stores, packed
casts and maxima. These numbers determine the types and whether values are observed. Rare blocks (small values, large
ones, factors of several parts) are therefore not counted, as nearly all data skip them, but the branches around them
are.
"""
import argparse
import csv
import ctypes
import functools
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
NOTES = HERE.parent / "docs/gpu-notes.md"
MARKS = ["<!-- instructions: written by sass.py -->", "<!-- end of instructions -->"]
ARCHITECTURES = [75, 80, 90]
# The commit that the table compares with.
COMPARED_COMMIT = "431419b"

# Names that files of kernels had in older commits.
FORMER_NAMES = {
    "block_reduce.cuh": "sums.cuh",
    "elementwise.cuh": "dense.cuh",
    "epilogue_pipeline.cuh": "hand_over.cuh",
    "grad_reduce.cu": "wire.cu",
    "implicit_gemm.cuh": "product.cuh",
    "mma_sync.cu": "tensor.cu",
    "multi_tensor.cuh": "lists.cuh",
    "operand_swap.cuh": "roles.cuh",
    "simt.cu": "plain.cu",
    "split_k_reduce.cu": "finish.cu",
}

# Kinds of instructions.
LOAD16 = r"LDG?\.E(\.\w+)*\.128\b"
STORE16 = r"STG?\.E(\.\w+)*\.128\b"
STORE8 = r"STG?\.E(\.\w+)*\.64\b"
PACK = r"F2FP\.(\S*F16|PACK)\S*|F2F\.F16\.\S*"
INTEGER_MAX = r"V?IMNMX3?\S*"
ATOMIC = r"ATOMS\S*"
ROOT = r"MUFU\.(RSQ|SQRT)\S*"
PRODUCT = r"HG?MMA\S*"
KEEP = r"STS\.64\b"
DIVIDE = r"MUFU\.RCP\S*"
# Description, module, kernel, elements of a round, number of instructions of each kind, and kinds that must be absent.
# A round of the earlier commit had one group of eight where there are two now.
CASES = [
    ("cast", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8}, [INTEGER_MAX, ATOMIC]),
    ("cast and counts", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8, INTEGER_MAX: 14}, [ATOMIC]),
    ("cast and counts and histogram", "unary", "unary", 16, {LOAD16: 4, STORE16: 2, PACK: 8, INTEGER_MAX: 14, ATOMIC: 16}, []),
    ("batch norm applied and counted", "norm", "norm_apply_by_channel", 32, {LOAD16: 4, STORE16: 4, PACK: 16, INTEGER_MAX: 28}, [ATOMIC]),
    ("batch norm backward applied and counted", "norm_vjp", "norm_vjp_apply_by_channel", 16, {LOAD16: 4, STORE16: 2, PACK: 8, INTEGER_MAX: 14}, [ATOMIC]),
    ("update by SGD with momentum", "optimize", "optimize", 4, {LOAD16: 3, STORE16: 2, STORE8: 1}, []),
    ("update by AdamW", "optimize", "optimize", 4, {LOAD16: 4, STORE16: 3, STORE8: 1, ROOT: 4}, []),
]
# Products by module and architecture, with the part of a tile that one thread stores. If the multiplying warps store:
# epilogue tiles, rounds of each, groups of eight in a round. If other warps store: warps whose sums one warp takes,
# rounds of each, groups of eight in a round. `sass.csv` has the first product of each kind on each architecture.
WAITED, APART = "end of a product with counts", "end of a product beside the next"
PARTIAL_SUMS = "sums of a product left to be stored"
PRODUCTS = [
    ("wgmma_tma_gemm_128x256", 90, WAITED, (8, 1, 2)),
    ("wgmma_tma_forward_128x64", 90, APART, (2, 2, 2)),
    ("conv_halo_forward", 90, APART, (2, 4, 2)),
    ("wgmma_tma_gemm_128x128", 90, APART, (2, 4, 2)),
    ("wgmma_tma_weight_t_128x64", 90, APART, (2, 2, 2)),
    ("mma_sync_gemm_128x128", 80, WAITED, (2, 4, 1)),
    ("mma_sync_gemm_128x128", 75, WAITED, (2, 4, 1)),
]
# For products of warpgroups: a thread arrives at a barrier or waits for it.
ARRIVE = r"SYNCS\.ARRIVE\S*"
LOOP = "inner loop of "
# Products on sm_90 whose threads load operands: module, and groups of eight that a thread loads of 64 of k. Most of the
# instructions compute addresses; the model of kernel_selection.rs has their number for each operand.
COPIES = "copies of "
COPIED = [
    *((f"wgmma_{name}_128x128", 8) for name in ("forward", "data", "weight")),
    *((f"wgmma_{name}_128x64", 6) for name in ("forward", "data", "weight", "weight_t")),
]
COPY = r"LDGSTS\S*"
# A thread divides at most so often in a round, each time with one reciprocal.
MOST_DIVISIONS = 24


class Failed(Exception):
    pass


def compiled(library, source, options):
    """Compiles a source by NVRTC and returns the machine code."""
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
    """Returns the instructions of each kernel in order: (predicate, words, targets)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        said = subprocess.run([nvidia.disassembler(), "-c", file.name], check=True, capture_output=True, text=True)
    return instructions(said.stdout)


LABEL = re.compile(r"^\s*(\.L_\w+):")
LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:(@!?\w+)\s+)?([^;]+?)\s*;")
TARGET = re.compile(r"`\((\.L_\w+)\)")
# Targets of an indirect branch.
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
    """Returns the basic blocks, instructions that always follow one another, and which blocks may follow each block."""
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
    """Returns the shortest path through the code that has the given numbers of each kind of instruction and none of
    some kinds: a loop, or a path from one block to one of several."""
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
        # Lower bound of the distance from each block to the end; blocks without a path to the end are not followed.
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


def put(times, eights, arch):
    """Returns the expected counts of instructions in the stores of some groups of eight, with statistics."""
    return packed({STORE16: eights * times, PACK: 4 * eights * times, INTEGER_MAX: 7 * eights * times}, arch)


def multiplied(code):
    """Returns a product's inner loop, and the blocks of its first and its last multiplication."""
    loop = shortest(code, {PRODUCT: 1})
    multiplies = [at for at, line in enumerate(loop) if re.match(PRODUCT, code[line][1])]
    blocks, _ = blocks_of(code)
    block_of = lambda at: next(i for i, block in enumerate(blocks) if at in block)
    return loop, multiplies, block_of(loop[multiplies[0]]), block_of(loop[multiplies[-1]]), blocks


def inner(code):
    """Returns how many instructions a product's inner loop has, how many of them multiply, and the most others between
    two of those."""
    loop, multiplies, *_ = multiplied(code)
    return len(loop), len(multiplies), max((b - a - 1 for a, b in zip(multiplies, multiplies[1:])), default=0)


def copied(code, eights):
    """Returns how many instructions other than products an inner loop has for each eight that a thread loads. The
    shortest way would go past all addresses, as outside an operand: it is that on which most is divided."""
    for divisions in range(MOST_DIVISIONS, -1, -1):
        divided = {DIVIDE: divisions} if divisions else {}
        way = shortest(code, {PRODUCT: 1, COPY: eights, **divided})
        words = [code[at][1] for at in way or []]
        # Only paths that go once through the loop.
        if sum(bool(re.match(COPY, word)) for word in words) == eights:
            return sum(not re.match(PRODUCT, word) for word in words) / eights
    return None


def waited(code, arch, tiles, rounds, eights):
    """Returns how many instructions a product's end has for each result where the threads that multiply store."""
    _, _, first, last, blocks = multiplied(code)
    # If tiles follow one another, the path ends at the next tile's products, otherwise at the end of the kernel. The
    # cost of a further epilogue tile is one round of the loop over them; if that loop is unrolled, it is the cost of
    # the second tile.
    kept = {**put(1, eights, arch), KEEP: 4 * rounds * eights}
    once, again = shortest(code, put(1, eights, arch), [ATOMIC]), shortest(code, kept, [ATOMIC])
    one = shortest(code, kept if again else put(1, eights, arch), [ATOMIC], last, {first, -1})
    two = None if again else shortest(code, put(2, eights, arch), [ATOMIC], last, {first, -1})
    if not one or not once or not (again or two):
        return None
    more = len(again) if again else len(two) - len(one)
    whole = len(one) - len(blocks[last]) + (tiles - 1) * more
    return (whole + (rounds - 1) * tiles * len(once)) / (8 * eights * tiles * rounds)


def apart(code, arch, partners, rounds, eights):
    """Returns the instructions for each result of warps that only store: rounds of the loops over eights, over the
    warps whose sums they take and over tiles, in each other. A tile is found by divisions, a warp's sums are given back
    at a barrier."""
    stored = put(1, eights, arch)
    kinds = [stored, {**stored, ARRIVE: 1}, {**stored, DIVIDE: 1}]
    once, partner, tile = (shortest(code, kind, [ATOMIC]) for kind in kinds)
    if not once or not partner or not tile:
        return None
    whole = len(tile) + (partners - 1) * len(partner) + partners * (rounds - 1) * len(once)
    return whole / (8 * eights * partners * rounds)


def left(code, partners, rounds, eights):
    """Returns how many instructions threads that multiply have for each result from a tile's last products to the next
    tile's first, where others store: they give back the last two stages and hand over their sums."""
    _, _, first, last, blocks = multiplied(code)
    # Half as many threads store as multiply.
    results = 8 * eights * partners * rounds // 2
    way = shortest(code, {KEEP: results // 2, ARRIVE: 3}, [ATOMIC], last, {first})
    return way and (len(way) - len(blocks[last])) / results


def with_files(source, files):
    """Returns the text of a module with other files in place of those of the same names."""
    head, *parts = re.split(r'(?m)^#line 1 "([^"]+)"\n', source)
    text = head
    for name, own in zip(parts[::2], parts[1::2]):
        text += f'#line 1 "{name}"\n{files(name, own)}'
    return text


def files_of(commit):
    """Returns a function that reads the kernels' files of a commit, by their present or former name. A file that the
    commit lacks stays as it is."""

    def text(name, own):
        for known in filter(None, (name, FORMER_NAMES.get(name))):
            command = ["git", "show", f"{commit}:backend-cuda/src/kernels/{known}"]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout
        return own

    return text


def packed(asked, arch):
    """Returns the expected counts where casts come one by one, not in pairs."""
    return {kind: least * (2 if kind == PACK and arch == 75 else 1) for kind, least in asked.items()}


def halved(asked):
    """Returns the expected counts of one group of eight, given those of two."""
    return {kind: least // 2 for kind, least in asked.items()}


def counted(code, elements, asked, none):
    """Returns the number of instructions for each element, or None if no loop with the expected ones is found."""
    way = shortest(code, asked, none)
    if way is None and elements == 16:
        elements, way = 8, shortest(code, halved(asked), none)
    return None if way is None else len(way) / elements


def number(count):
    return "" if count is None else f"{count:.2f}"


def write(rows, products, commit, old):
    """Writes the table of instruction counts as CSV and as Markdown."""
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["what", "arch", "instructions", "before"])
        table.writerows(rows)
    lines = [f"Of {commit}; in brackets those of {old}, before values were observed eight at a time.", ""]
    lines += ["| instructions an element | " + " | ".join(f"sm_{arch}" for arch in ARCHITECTURES) + " |"]
    lines += ["|---|" + "---|" * len(ARCHITECTURES)]
    for what in dict.fromkeys(what for what, *_ in rows if not what.startswith((LOOP, COPIES))):
        here = {arch: f"{now} ({was})" if was else now for name, arch, now, was in rows if name == what}
        lines.append(f"| {what} | " + " | ".join(here.get(arch, "") for arch in ARCHITECTURES) + " |")
    lines += ["", "| product whose threads bring operands | instructions for eight elements |", "|---|---|"]
    lines += [f"| {what.removeprefix(COPIES)} | {now} |" for what, _, now, _ in rows if what.startswith(COPIES)]
    lines += ["", "| product | inner loop | of them multiply | most others between two |", "|---|---|---|---|"]
    lines += [f"| {module}, sm_{arch} | {loop} | {count} | {most} |" for module, arch, loop, count, most in products]
    text = NOTES.read_text()
    (first, rest), end = text.split(MARKS[0]), MARKS[1]
    NOTES.write_text(first + MARKS[0] + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--before", metavar="COMMIT", help=f"counts those of this commit ({COMPARED_COMMIT} so far) afresh")
    parser.add_argument("--show", metavar="CASE", help="prints the round that was counted, on sm_90, and writes nothing")
    asked = parser.parse_args()
    # Loaded first, because the compiler finds a loaded library by its name.
    builtins = [ctypes.CDLL(str(path)) for path in nvidia.libraries().glob("libnvrtc-builtins.so.*")]
    library = ctypes.CDLL(str(nvidia.libraries() / "libnvrtc.so.13"))
    assert builtins, "the compiler's own functions lie beside it"
    old_files, rows, products = asked.before and files_of(asked.before), [], []
    was = {(row["what"], int(row["arch"])): row["before"] for row in csv.DictReader(TABLE.open(newline=""))}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for arch in ARCHITECTURES:
            subprocess.run([asked.program, "sources", folder / str(arch), str(arch)], check=True)

        # Many cases are of one module, which takes long to compile.
        @functools.cache
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
                    # The files of the two commits do not fit together, so the earlier counts are kept.
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
        for module, arch, kind, sizes in PRODUCTS:
            loop, multiply, most = inner(code_of(module, None, arch))
            products.append([module, arch, loop, multiply, most])
            print(*products[-1], flush=True)
            if arch == 90:
                rows.append([LOOP + module, arch, number(loop), ""])
            if (kind, arch) in ended:
                continue
            ended.add((kind, arch))
            if kind == APART:
                rows.append(both(PARTIAL_SUMS, lambda code: left(code, *sizes), module, None, arch))
                print(*rows[-1], flush=True)
            end = apart if kind == APART else waited
            rows.append(both(kind, lambda code: end(code, arch, *sizes), module, None, arch))
            print(*rows[-1], flush=True)
        for module, eights in COPIED:
            rows.append([COPIES + module, 90, number(copied(code_of(module, None, 90), eights)), ""])
            print(*rows[-1], flush=True)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
    write(rows, products, commit.stdout.strip(), asked.before or COMPARED_COMMIT)


if __name__ == "__main__":
    main()
