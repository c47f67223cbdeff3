"""Page of scripts/against_pytorch.py: tables of its results."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
from shared.origin import commit, machine  # noqa: E402, F401

PARTS = ["speed", "lengths", "paper", "full"]
FULL = ["alexnet", "vgg-16", "googlenet", "inception-v2", "inception-v3", "resnet-18", "resnet-50", "segnet", "ssd-300",
        "ssd-512", "faster-rcnn"]
HEAD = {
    "speed": """## Speed of a training step

A step of each network of [workloads.md](workloads.md) as it is trained there: forward and backward pass and update, by the methods `fp32` and `gs`, and of the same network in PyTorch's f32 on batches of the same sizes. The processes take their steps in turn; medians, and the median of each turn's ratios, so that what else the machine does falls on both. PyTorch's images lie in the order of memory that is faster, which is said. The next batch is not in these times: ours is *read* meanwhile, which took so long. Half values are computed in f32 on a CPU, so `gs` has the casts and statistics on top of f32 and saves memory, not time. *Of the processors*: medians of what they worked for a step, all threads together, but for those that live only while the next batch is read; where a machine has much else to do, this is what compares, and times by the clock say little.
""",
    "lengths": """## Memory of lengths that change

Memory of the process, and of the device's buffers, in one training by `gs` after so many steps; batches have so many different sizes until then.
""",
    "paper": """## A step at the paper's size

The second training step of each network with `--size paper`; the first compiles. *Memory*: the most that the process ever had, data and program included; *device*: buffers of the step, of parameters with their optimizer, of the next batch. Batches are small so that a machine of 16 GB takes each step; pictures of 224 × 224 are made up, all else is data at hand. The loss of the first and the second step is a check that the step is one.
""",
    "full": """## Answers and gradients at the paper's size

The engine's f32 beside PyTorch's f32, both against PyTorch's f64, from the same weights on the same images. *Answers*: the largest difference, of the largest answer. *Gradients*: of each parameter's tensor the root mean square of the differences, of its own; the median of all tensors and the most. Where a rounding turns a ReLU, or the choice of a pooling, the gradients behind it are others, in any f32: *turned* counts the decisions that PyTorch's own f32 makes otherwise than its f64; *moves* is how far PyTorch's f32 gradients move when pixels change so little that its answers move as far as ours are off (4 draws, from 2^-22 on). Ours may differ by three times that. Of boxes, ours may differ by ten times what PyTorch's f32 does. SegNet's image is small and chosen so that no rounding turns a pooling: its value would be unpooled at another place, and answers be others in any f32.
""",
}


def results(directory, part):
    """Results of a part, in the order of the page."""
    found = {path.stem: json.loads(path.read_text()) for path in (directory / part).glob("*.json")}
    import workloads

    order = [workload.network for workload in workloads.WORKLOADS]
    return sorted(found.values(), key=lambda one: (order.index(one["network"]) if one["network"] in order else 99, one["network"]))


def milliseconds(seconds):
    return f"{1000 * seconds:.0f}" if seconds >= 0.01 else f"{1000 * seconds:.1f}"


def mega(size):
    return f"{size / 1e6:.0f}"


def sizes(one):
    return " × ".join(map(str, one))


def speed(found):
    medians = found["medians"]
    layout = " (channels last)" if found["faster"] != "PyTorch" else ""
    return [found["words"], sizes(found["sizes"]), milliseconds(medians[found["faster"]]) + layout, milliseconds(medians["fp32"]),
            milliseconds(medians["gs"]), f"{found['ratios']['fp32']:.2f}", f"{found['ratios']['gs']:.2f}",
            " / ".join(milliseconds(found["worked"][name]) for name in [found["faster"], "fp32", "gs"]),
            milliseconds(found["fetched"])]


def lengths(found):
    return [[found["words"], number, mega(resident), mega(device), count]
            for number, (resident, device, count) in found["after"].items()]


def paper(found):
    rows = []
    for method, one in found["methods"].items():
        losses = ", ".join(f"{loss:.4g}" for loss in one["losses"])
        rows.append([found["words"], sizes(found["sizes"]), method, f"{one['seconds']:.2f}", mega(one["peak"]), mega(one["device"]),
                     losses + (", skipped" if one["skipped"] else "")])
    return rows


def full(found):
    turned = ", ".join(f"{number} {kind}" for kind, (number, _) in found["turned"].items())
    moves = f"{found['moves']:.1e}" if "moves" in found else "–"
    batch, side = found["images"]
    pair = lambda key: f"{found[key]:.1e} / {found['pytorch ' + key]:.1e}"
    return [found["network"], f"{found['parameters']:,}".replace(",", " "), f"{batch} of {side} × {side}", pair("answers"),
            pair("median"), pair("most"), turned, moves, "yes" if found["agrees"] else "**no**"]


COLUMNS = {
    "speed": ["network", "batch", "PyTorch f32, ms", "fp32, ms", "gs, ms", "fp32 / PyTorch", "gs / PyTorch", "of the processors: PyTorch / fp32 / gs, ms", "read, ms"],
    "lengths": ["network", "steps", "process MB", "device MB", "sizes seen"],
    "paper": ["network", "batch", "method", "seconds", "memory MB", "device MB", "losses"],
    "full": ["network", "parameters", "images", "answers: ours / PyTorch's f32", "gradients, median", "gradients, most", "turned",
             "moves", "agrees"],
}
ROWS = {"speed": lambda found: [speed(found)], "lengths": lengths, "paper": paper, "full": lambda found: [full(found)]}


def line(part, found):
    """A result in a line."""
    return "; ".join(" | ".join(map(str, row)) for row in ROWS[part](found))


def origin(all_of):
    """Commits, machines, threads and PyTorch of a part."""
    said = []
    for one in all_of:
        words = [f"commit {one['commit']}", one["machine"]]
        words += [f"{one['threads']} threads"] if "threads" in one else []
        words += [f"PyTorch {one['torch']}"] if "torch" in one else []
        if (text := ", ".join(words)) not in said:
            said.append(text)
    return "<sub>" + "; ".join(said) + ".</sub>"


def write(directory):
    """The page; which parts are not there."""
    text = "# Against PyTorch\n\nWritten by `scripts/against_pytorch.py`.\n"
    missing = []
    for part in PARTS:
        all_of = results(directory, part)
        if not all_of:
            missing.append(part)
            continue
        columns = COLUMNS[part]
        text += "\n" + HEAD[part] + "\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|\n"
        text += "".join("| " + " | ".join(map(str, row)) + " |\n" for found in all_of for row in ROWS[part](found))
        text += "\n" + origin(all_of) + "\n"
    (ROOT / "docs/against-pytorch.md").write_text(text)
    return missing
