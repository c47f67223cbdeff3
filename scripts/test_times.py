"""The table of docs/test-times.md: how long each part of the test takes, and what it took at the last release."""

MARKS = "<!-- times: written by ./test.sh --record -->", "<!-- end of times -->"

# Property that only this part proves.
PROVES = {
    "lints": "clippy on all targets of all crates and devices, warnings are errors",
    "documentation": "every link of the documentation; public items are documented",
    "links and citations": "links, anchors, paths and cited sections of documents and comments exist; planted faults are found",
    "the engine without a backend": "core and engine alone compile, without warnings",
    "build": "all test programs, from nothing",
    "examples of the documentation": "examples compile and run, misuse does not compile",
    "wgpu on software drivers": "every kernel on lavapipe; small bindings and no subgroups; small numbers, tiles on SwiftShader",
    "emulated processors": "AVX2, plain x86-64 and NEON on processors that have no more",
    "bare metal": "core on a Cortex-M4F: the host's bits, no panic linked, sizes",
    "Miri": "no undefined behaviour below core, big-endian too",
    "TensorBoard": "its own reader reads what the program writes",
    "Python package": "casts, statistics, decisions from Python; PyTorch by it, eager and compiled",
    "ONNX": "ONNX Runtime answers what every network answers here; what is exported of each task runs there",
    "GPU bundle": "every phase runs whatever the others do; results and pages from whole and broken files",
    "PyTorch beside the CUDA bench": "the networks and the unpooling of PyTorch that CUDA is compared with are the same ones",
    "the page of speeds": "goals that are met and missed, what people wrote stays, out of made-up results",
    "mutants of core": "each text that a mutant replaces still occurs once; with --all a test catches each mutant",
    "site": "every page has a place, every link of the built pages a target; the front page says what README and the record say",
    "natural experiments": "what pages say of PyTorch's scaler is what the record says, and the record is complete",
    "starter": "`cargo run` builds none of the parts that can be left out, `cargo install` all; with --all it refuses them",
    "the program without its parts": "it compiles without warnings",
    "names": "no constant or function of a bare word, and no new circle of imports or type name of many meanings",
    "claims": "each claim's figure is that of the records; Table 3 pair by pair",
    "C library": "the bits of Rust from C; misuse under sanitizers and valgrind; no panic linked",
    "WebAssembly": "the bits of C from JavaScript, types, misuse; the suite on SIMD128 and portable kernels, under node",
    "browser": "a browser's compiler takes every kernel of wgpu; what the page says where something is missing",
    "adapters": "burn's and candle's gradients in FP16; two towers that train with scales alone",
    "publishing": "metadata of every crate, licences; with --all each packs and verifies, and the program's wheel installs",
    "releases": "all packages have one version, and one that is not ready is not tagged",
    "table of times": "the table of docs/test-times.md says which parts grew since the last release",
    "wheels": "wheels for x86-64 and AArch64 install without Rust on CPython 3.9 to 3.14; the sources build",
    "MPI": "1, 2 and 4 ranks of MPI give one checkpoint; whoever is not alike, or killed, ends all",
    "cuda: emulation": "all of the CUDA backend but hardware: the whole suite on the kernels' text",
    "cuda: tiles": "every tile of every product, bit for bit, for three generations of instructions",
    "cuda: fp8": "products in eight bits: within their bound, also if tensor cores keep 14 bits of a sum",
    "cuda: bf16x6": "products in f32 on tensor cores: errors below those without, infinities and NaN as without",
    "cuda: training": "the engine on CUDA, recorded and eager",
    "cuda: faults": "whatever fails on a GPU is an error, and a training goes on",
    "cuda: forbidden": "the emulated driver sees what CUDA forbids",
    "cuda: steps": "a step is two recordings; what is read back does not wait for the next batch",
    "cuda: nccl": "ranks on GPUs, by an emulated NCCL, have the weights of one",
    "cuda: cubins": "machine code is kept whole or not at all",
    "cuda: compile": "no kernel has changed since it was compiled for seven architectures without spills",
    "cpu: conformance": "the whole suite on the best instruction set, 2^32 casts included; few inputs on the others",
    "conformance: conformance": "the suite's own definitions pass it",
    "conformance: faults": "the suite finds each planted fault",
    "engine-tests: engine": "gradients against f64 and PyTorch, plans, training",
    "conformance: third_party": "somebody else's backend in three lines",
    "core: exhaustive": "2^32 casts of core's definition; the other formats on both sides of every change",
}


def rows(results):
    """Returns part, seconds and seconds of processors: a row for each part that takes long, and one for the rest of each package."""
    long, rest = [], {}
    for result in results:
        if result.processors >= 10 or result.name in PROVES:
            verdict = "" if result.verdict == "PASSED" else f" ({result.verdict.lower()})"
            long.append((result.name + verdict, result.wall, result.processors))
        else:
            package = result.name.split(":")[0]
            wall, used, count = rest.get(package, (0, 0, 0))
            rest[package] = wall + result.wall, used + result.processors, count + 1
    return long + [(f"{package}: {count} more", wall, used) for package, (wall, used, count) in rest.items() if count > 1]


def read(text):
    """Returns the seconds of processors of each part in a table that was written before."""
    found = {}
    for line in text.partition(MARKS[0])[2].partition(MARKS[1])[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) > 2 and cells[2].isdecimal():
            found[base(cells[0])] = int(cells[2])
    return found


def base(name):
    """Returns the name of a row without the number of programs that share it, which changes."""
    return name.split(":")[0] + ": more" if name.endswith(" more") else name


def with_table(page, head, times, released, before):
    """Returns the page with a new table. `before` has the seconds of processors at the version `released`, if there is one."""
    columns = ["part", "seconds", "of processors", *([f"at {released}"] if released else []), "what it alone proves"]
    lines = [head, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, wall, used in times:
        then = [str(before.get(base(name), "new"))] if released else []
        lines.append("| " + " | ".join([name, f"{wall:.0f}", f"{used:.0f}", *then, PROVES.get(name, "")]).rstrip() + " |")
    start, _, rest = page.partition(MARKS[0])
    _, _, end = rest.partition(MARKS[1])
    return start + MARKS[0] + "\n" + "\n".join(lines) + "\n" + MARKS[1] + end
