"""The papers' networks for images at full size: the engine's f32 and PyTorch's f32, both compared with PyTorch's
f64."""

import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import vision
from shared.origin import ROOT, commit, machine
from vision import CLASSES, HEADS, NETWORKS, batch_of, computed, fill, uniform


# If a rounding changes a pooling of SegNet, the value is unpooled at another position and the outputs differ, in
# PyTorch's f32 too. With images this small that does not happen for this name, the only one of ten.
DRAWN = {"segnet": "input 2"}


def seconds(network, build, images, labels, steps):
    """Seconds of each training step in f32, in the layout that is faster."""
    best = None
    for layout in (torch.contiguous_format, torch.channels_last):
        model = build(CLASSES).to(memory_format=layout)
        optimizer, x, times = torch.optim.SGD(model.parameters(), 1e-3, 0.9), images.contiguous(memory_format=layout), []
        for _ in range(steps):
            start = time.perf_counter()
            optimizer.zero_grad()
            heads = model(x)
            heads = list(heads) if isinstance(heads, tuple) else [heads]
            sum(weight * F.cross_entropy(head, labels) for weight, head in zip(HEADS.get(network, [1.0]), heads)).backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
        best = times if best is None or statistics.median(times) < statistics.median(best) else best
    return best


class Decisions:
    """Decisions of a forward pass: values that a ReLU passes, and positions that a pooling selects."""

    def __enter__(self):
        self.made, self.functions = [], (F.relu, F.max_pool2d)
        relu, pool = self.functions

        def deciding_relu(x, inplace=False):
            self.made.append(("ReLU", numpy.packbits((x > 0).numpy()), x.numel()))
            return relu(x, inplace)

        def deciding_pool(x, *sizes, **others):
            with torch.no_grad():
                chosen = pool(x, *sizes, **{**others, "return_indices": True})[1]
            self.made.append(("pooling", chosen.to(torch.int32).numpy(), chosen.numel()))
            return pool(x, *sizes, **others)

        F.relu, F.max_pool2d = deciding_relu, deciding_pool
        return self

    def __exit__(self, *_):
        F.relu, F.max_pool2d = self.functions


def turned(one, two):
    """Returns for each kind of decision how many differ, and how many there are."""
    counts = {"ReLU": [0, 0], "pooling": [0, 0]}
    for (kind, a, of), (_, b, _) in zip(one.made, two.made):
        different = numpy.unpackbits(a ^ b).sum() if kind == "ReLU" else (a != b).sum()
        counts[kind] = [counts[kind][0] + int(different), counts[kind][1] + of]
    return counts


def passed(network, model, images, labels):
    """Computes as `computed` does, and also returns the decisions of the training pass."""
    for one in model.parameters():
        one.grad = None
    model.eval()
    training, evaluation, gradients = computed(network, model, images, labels)
    with Decisions() as decisions, torch.no_grad():
        model(images)
    return training, evaluation, {name: gradient.clone() for name, gradient in gradients.items()}, decisions


def moved(network, model, images, labels, right, answers, of):
    """Returns how far PyTorch's own gradients change (`spread` by the sizes `of`, the largest of all) if pixels
    change so little that the outputs change by `answers` of the largest. The change of pixels stands for roundings
    that change a ReLU or the choice of a pooling. `right`: outputs and gradients without a change."""
    right, gradients = right
    most, change = 0.0, 2.0**-22
    for draw in range(4):
        while True:
            for one in model.parameters():
                one.grad = None
            pixels = images * (1.0 + change * uniform(f"draw{draw}", images.shape).to(images.dtype))
            found, _, turned = computed(network, model, pixels, labels)
            if (found - right).abs().max() >= answers * right.abs().max() or change > 2.0**-10:
                break
            change *= 2.0
        most = max(most, spread(turned, gradients, of)[0][0])
    return most


def last(tensor):
    """Channels last."""
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor


def off(found, right):
    """The largest difference, of the largest value."""
    return ((found.double() - right).abs().max() / right.abs().max()).item()


def engine(network, model, images, labels, steps):
    """The engine's answers, gradients and times, by the example `vision`."""
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        save_file({name: one for name, one in model.state_dict().items()}, path("weights"))
        save_file({"images": images.permute(0, 2, 3, 1).contiguous(), "labels": labels.to(torch.uint8)}, path("batch"))
        subprocess.run(["cargo", "run", "--quiet", "--profile", os.environ.get("PROFILE", "release"), "--example", "vision",
                        "--", network, str(CLASSES), path("weights"), path("batch"), path("answer"), str(steps)],
                       cwd=ROOT, check=True)
        return load_file(path("answer"))


def sizes(gradients):
    """Returns the scale of each tensor's differences: its own norm. Gradients that are zero except for roundings of
    f64, for example those of a bias before batch norm, have no scale, and are compared with the largest of all."""
    norms = {name: one.norm() for name, one in gradients.items()}
    largest = max(norms.values())
    return {name: norm if norm > 1e-12 * largest else largest for name, norm in norms.items()}


def spread(found, right, of):
    """Root mean square of the differences of each tensor, relative to its size, in descending order with names."""
    rows = [((found[name].double() - one).norm() / of[name], name) for name, one in right.items()]
    return sorted(((float(share), name) for share, name in rows), reverse=True)


def shaped(ours, gradients):
    """The engine's gradients as PyTorch has them."""
    found = {}
    for name, right in gradients.items():
        one = ours[name]
        flattened = ours.get(f"flattened.{name}")
        if flattened is not None:
            h, w, c = (int(size) for size in flattened)
            one = one.reshape(-1, h, w, c).permute(0, 3, 1, 2)
        elif right.dim() == 4:
            n, c, h, w = right.shape
            one = one.reshape(n, h, w, c).permute(0, 3, 1, 2)
        found[name] = one.reshape(right.shape)
    return found


def one(network, steps):
    """Compares one network, and returns the result."""
    build, _, side = NETWORKS[network]
    # Two heads' batch norm of one pixel wants more than one image.
    batch = 3 if network == "inception-v3" else 2
    model = build(CLASSES)
    fill(model)
    images, labels = batch_of(network, batch, side, side, DRAWN.get(network, "input"))
    ours = engine(network, model, images, labels, steps)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    single = passed(network, model, images, labels)
    model.load_state_dict(state)
    model = model.double()
    training, evaluation, gradients, decisions = passed(network, model, images.double(), labels)
    model.load_state_dict(state)
    heads = torch.stack([last(head) for head in training])
    answers = max(off(ours["training"].reshape(heads.shape), heads),
                  off(ours["evaluation"].reshape(last(evaluation).shape), last(evaluation)))
    of = sizes(gradients)
    rows, theirs = spread(shaped(ours, gradients), gradients, of), spread(single[2], gradients, of)
    moves = moved(network, model.float(), images, labels, (single[0], single[2]), answers, of)
    # If roundings change a ReLU or the choice of a pooling, gradients below it change as far as in `moved`.
    found = {
        "network": network, "parameters": sum(one.numel() for one in model.parameters()), "images": [batch, side],
        "answers": answers, "pytorch answers": max(off(single[0], training), off(single[1], evaluation)),
        "median": rows[len(rows) // 2][0], "most": rows[0][0], "tensor": rows[0][1], "least": rows[-1][0],
        "pytorch median": theirs[len(theirs) // 2][0], "pytorch most": theirs[0][0], "moves": moves,
        "turned": turned(single[3], decisions),
        "agrees": answers <= 1e-5 and rows[0][0] <= max(1e-5, 3.0 * moves),
        "commit": commit(), "machine": machine(), "torch": torch.__version__,
    }
    if steps:
        # The first step compiles.
        found["steps"] = {method: statistics.median(ours[f"steps.{method}"][1:].tolist()) for method in ("fp32", "gs")}
        found["steps"]["pytorch"] = statistics.median(seconds(network, build, images, labels, steps)[1:])
    return found


def words(found):
    network = found["network"]
    lines = [f"{network}: {'as PyTorch' if found['agrees'] else 'NOT as PyTorch'}; {found['parameters']} parameters; answers "
             f"off by {found['answers']:.1e} of the largest (PyTorch's f32: {found['pytorch answers']:.1e}); gradients of each "
             f"tensor, root mean square: median {found['median']:.1e} (PyTorch's f32: {found['pytorch median']:.1e}), most "
             f"{found['most']:.1e} ({found['tensor']}; PyTorch's f32: {found['pytorch most']:.1e}), where PyTorch's own move by "
             f"{found['moves']:.1e} as answers move so far; decisions that PyTorch's f32 turns: {found['turned']}"]
    if "steps" in found:
        times = found["steps"]
        batch, side = found["images"]
        ours = "; ".join(f"{method} {1000 * times[method]:.0f} ms, {times[method] / times['pytorch']:.2f} × PyTorch's"
                         for method in ("fp32", "gs"))
        lines.append(f"{network}: a step of {batch} images of {side} × {side}: PyTorch f32 {1000 * times['pytorch']:.0f} ms; {ours}")
    return "\n".join(lines)


def compare(arguments):
    """Returns whether all named networks agree, or all networks if none is named."""
    names, options = [word for word in arguments if word != "--full"], {"--steps": "0", "--results": None}
    for option in options:
        if option in names:
            at = names.index(option)
            options[option] = names[at + 1]
            del names[at:at + 2]
    same = True
    for network in names or NETWORKS:
        found = one(network, int(options["--steps"]))
        print(words(found), flush=True)
        same = same and found["agrees"]
        if options["--results"]:
            keep(options["--results"], found)
    return same


def keep(directory, found):
    """A file of its own for each network."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, f"{found['network']}.json"), "w") as file:
        json.dump(found, file, indent=1)
