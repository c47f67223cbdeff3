#!/usr/bin/env python3
"""Multibox detectors against torchvision, and average precision against other packages.

    pip install torch torchvision numpy mean-average-precision
    python3 detection.py            write detection.txt and boxes.txt beside this file
    python3 detection.py --check    compute again, exit 1 if a number differs
    python3 detection.py --found DIRECTORY BOXES
                                    the first, with boxes that a network found: PASCAL VOC's layout, and the table of
                                    `gradscale predict` on its test pictures
    python3 detection.py --paper [--results DIRECTORY] [NETWORK ...]
                                    the papers' networks at full size: answers, loss and gradients of one image, element by
                                    element; builds and runs the example `detection`; a file NETWORK.json each in the
                                    directory of results

detection.txt has lines as vision.txt, of narrow networks: `logits` and `offsets` are answers, names of tensors their
gradients. Weights are a function of their names. SSD-512 is torchvision's SSD with the
paper's layers, which its own extractor for high resolutions does not have.

boxes.txt has lines as engine.txt (case, key, shape, values; tabs between):

  defaults SIZE        eight numbers for each network: the number of default boxes, signed sums of their sides, largest
  match NAME           truths, defaults, matched: the truth of each default box, -1 for none; codes of those matched
  nms NAME             boxes, scores, threshold, kept
  detect NAME          logits, offsets, defaults, limits; classes, scores, corners of what is found
  precision NAME       truths: image, class, corners; found: image, class, score, corners; of each class the area below the
                       curve, and the mean at eleven recalls
"""

import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision
from torch import nn
from torchvision.models.detection import _utils as utils
from torchvision.models.detection import ssd
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.image_list import ImageList

import vision
from shared.found import average_precision, of_files, of_table
from vision import NARROW, line, uniform

# Directory and table of --found.
FOUND = sys.argv[sys.argv.index("--found") + 1:][:2] if "--found" in sys.argv else None
HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 3
# Corners as fractions of the image; the second image has no objects.
TRUTHS = [
    [[0.11, 0.2, 0.36, 0.52, 1], [0.5, 0.47, 0.95, 0.91, 2], [0.05, 0.7, 0.123, 0.79, 3]],
    [],
]


class Features512(nn.Module):
    """The paper's SSD-512: stride 2 down to two pixels, then a kernel of four."""

    def __init__(self, base):
        super().__init__()
        self.scale_weight, self.features = base.scale_weight, base.features
        pair = lambda inputs, kernel, stride: nn.Sequential(
            nn.Conv2d(inputs, 128, 1), nn.ReLU(), nn.Conv2d(128, 256, kernel, stride, 1), nn.ReLU())
        self.extra = nn.ModuleList(
            [base.extra[0], base.extra[1], pair(512, 3, 2), pair(256, 3, 2), pair(256, 3, 2), pair(256, 4, 1)])

    forward = ssd.SSDFeatureExtractorVGG.forward


def built(name, classes):
    """Torchvision's SSD with its backbone of VGG-16, all layers trainable."""
    backbone = ssd._vgg_extractor(torchvision.models.vgg16(), False, 5)
    if name == "ssd-300":
        anchors = DefaultBoxGenerator([[2], [2, 3], [2, 3], [2, 3], [2], [2]],
                                      scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
                                      steps=[8, 16, 32, 64, 100, 300])
        channels = [512, 1024, 512, 256, 256, 256]
        side = 300
    else:
        backbone = Features512(backbone)
        anchors = DefaultBoxGenerator([[2], [2, 3], [2, 3], [2, 3], [2, 3], [2], [2]],
                                      scales=[0.07, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05],
                                      steps=[8, 16, 32, 64, 128, 256, 512])
        channels = [512, 1024, 512, 256, 256, 256, 256]
        side = 512
    head = ssd.SSDHead(channels, anchors.num_anchors_per_location(), classes + 1)
    return ssd.SSD(backbone, anchors, (side, side), classes + 1, head=head), side


def narrowed(model, width):
    """Narrows a network as vision.py does; the heads keep their number of outputs."""
    of = lambda channels: -(-channels * width // 64)
    for parent_name, parent in model.named_modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Conv2d):
                inputs = layer.in_channels if layer.in_channels == 3 else of(layer.in_channels)
                outputs = layer.out_channels if parent_name.startswith("head") else of(layer.out_channels)
                setattr(parent, name, nn.Conv2d(inputs, outputs, layer.kernel_size, layer.stride, layer.padding,
                                                layer.dilation, bias=layer.bias is not None))
            elif isinstance(layer, nn.BatchNorm2d):
                setattr(parent, name, nn.BatchNorm2d(of(layer.num_features)))
    model.backbone.scale_weight = nn.Parameter(model.backbone.scale_weight[: of(512)].detach().clone())
    return model


# Before a ReLU few values are near 0, where a rounding of f32 would turn some on or off, whose gradients then differ by more
# than any bound, PyTorch's own in f32 too: filters have the sum 0, and biases are this far from 0, in a quarter below.
SHIFT = 4.0


def value(name, shape):
    drawn = uniform(name, shape)
    if name == "backbone.scale_weight":
        drawn = 20.0 + drawn
    elif name.startswith("head."):
        drawn = drawn * (3.0 / numpy.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1 * drawn
    elif len(shape) > 1:
        flat = drawn.reshape(shape[0], -1)
        flat = (flat - flat.mean(1, keepdim=True)) * (4.0 / flat.shape[1]) ** 0.5
        drawn = flat.reshape(shape)
    else:
        drawn = torch.where(drawn < -0.5, -SHIFT, SHIFT) + 0.1 * drawn
    return drawn.to(torch.float32)


def fill(model):
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.copy_(value(name, tuple(tensor.shape)))
    model.load_state_dict(state)


def computed(model, images, truths, side):
    """Answers, the loss, gradients of all parameters."""
    features = list(model.backbone(images).values())
    answers = model.head(features)
    listed = ImageList(images, [(side, side)] * len(images))
    anchors = model.anchor_generator(listed, features)
    targets, matched = [], []
    for image, truth in enumerate(truths):
        truth = torch.tensor(truth, dtype=torch.float32).reshape(-1, 5).to(images.dtype)
        boxes = truth[:, :4] * side
        targets.append({"boxes": boxes, "labels": truth[:, 4].to(torch.int64)})
        if len(boxes):
            quality = torchvision.ops.box_iou(boxes, anchors[image])
            matched.append(model.proposal_matcher(quality))
        else:
            matched.append(torch.full((len(anchors[image]),), -1, dtype=torch.int64))
    losses = model.compute_loss(targets, answers, anchors, matched)
    loss = losses["classification"] + losses["bbox_regression"]
    loss.backward()
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return answers["cls_logits"].detach(), answers["bbox_regression"].detach(), loss.detach()[None], gradients


def networks():
    lines = []
    # Images drawn from names for which PyTorch's f32 gradients agree with those in f64. In larger images some window of
    # the first poolings always has two maxima that are equal in f32.
    for name, truths, drawn in [("ssd-300", TRUTHS, "ssd-300 3"), ("ssd-512", TRUTHS[:1], "ssd-512 5")]:
        model, side = built(name, CLASSES)
        narrowed(model, NARROW)
        fill(model)
        images = uniform(drawn, (len(truths), 3, side, side)).to(torch.float32)
        logits, offsets, loss, gradients = computed(model.double(), images.double(), truths, side)
        lines.append(f"network {name} {len(truths)} {side} {side}")
        lines += [line("logits", logits), line("offsets", offsets), line("loss", loss)]
        lines += [line(key, gradient) for key, gradient in gradients.items()]
    return lines


LINES = []


def write(case, key, tensor):
    tensor = torch.as_tensor(tensor)
    shape = " ".join(str(size) for size in tensor.shape)
    flat = tensor.flatten().tolist()
    values = " ".join(f"{x:.8g}" if isinstance(x, float) else str(int(x)) for x in flat)
    LINES.append(f"{case}\t{key}\t{shape}\t{values}")


def random_boxes(count, size=100.0):
    corners = torch.rand(count, 2) * size * 0.8
    return torch.round(torch.cat([corners, corners + 2 + torch.rand(count, 2) * size * 0.3], 1) * 8) / 8


def defaults():
    for name in ["ssd-300", "ssd-512"]:
        model, side = built(name, CLASSES)
        maps = [38, 19, 10, 5, 3, 1] if side == 300 else [64, 32, 16, 8, 4, 2, 1]
        boxes = model.anchor_generator._grid_default_boxes([[m, m] for m in maps], [side, side], torch.float64)
        corners = torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
        row = line("defaults", corners).split(" ")
        write(f"defaults {name}", "count", torch.tensor([len(corners)]))
        write(f"defaults {name}", "sums", torch.tensor([float(x) for x in row[2:]]))
        write(f"defaults {name}", "some", corners[:: len(corners) // 40][:40])


def matching():
    torch.manual_seed(3)
    coder = utils.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
    grid = torch.stack(torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij"), -1).reshape(-1, 2) * 16
    fixed = torch.cat([torch.cat([grid, grid + 16], 1), torch.cat([grid - 8, grid + 24], 1)])
    for name, truths in [
        ("random", random_boxes(9, 96.0)), ("one", random_boxes(1, 96.0)),
        # Two truths whose best default box is the same; the same truth twice; one that is a default box.
        ("rivals", torch.tensor([[17.0, 17, 30, 30], [18.0, 18, 31, 31], [18.0, 18, 31, 31], [48.0, 32, 64, 48]])),
        ("small", torch.tensor([[5.0, 5, 6, 6], [200.0, 200, 210, 210]])),
    ]:
        matched = utils.SSDMatcher(0.5)(torchvision.ops.box_iou(truths, fixed))
        write(f"match {name}", "truths", truths)
        write(f"match {name}", "defaults", fixed)
        write(f"match {name}", "matched", matched)
        some = matched >= 0
        write(f"match {name}", "codes", coder.encode_single(truths[matched[some]], fixed[some]))


def suppression():
    torch.manual_seed(4)
    equal = torch.tensor([[0.0, 0, 10, 10]] * 5)
    lines = torch.tensor([[5.0, 5, 5, 9], [5.0, 5, 5, 9], [2.0, 2, 2, 2], [0.0, 0, 10, 10]])
    half = torch.tensor([[0.0, 0, 10, 10], [0.0, 0, 10, 5], [0.0, 5, 10, 10], [0.0, 0, 5, 10]])
    inverted = torch.tensor([[10.0, 10, 0, 0], [0.0, 0, 10, 10], [1.0, 1, 10, 10]])
    for name, boxes, scores, threshold in [
        ("random", random_boxes(50), torch.rand(50), 0.3), ("loose", random_boxes(50), torch.rand(50), 0.7),
        ("tight", random_boxes(40), torch.rand(40), 0.0), ("none", torch.zeros(0, 4), torch.zeros(0), 0.5),
        ("one", random_boxes(1), torch.rand(1), 0.5), ("equal", equal, torch.tensor([0.2, 0.9, 0.9, 0.1, 0.5]), 0.5),
        ("equal scores", random_boxes(30), torch.full((30,), 0.5), 0.3), ("lines", lines, torch.rand(4), 0.5),
        ("exactly half", half, torch.tensor([0.9, 0.8, 0.7, 0.6]), 0.5),
        ("inverted", inverted, torch.tensor([0.9, 0.8, 0.7]), 0.5),
        ("all", random_boxes(30), torch.rand(30), 1.0),
    ]:
        kept = torchvision.ops.nms(boxes, scores, threshold)
        for key, value in {"boxes": boxes, "scores": scores, "threshold": torch.tensor([threshold]),
                           "kept": kept}.items():
            write(f"nms {name}", key, value)


def detecting():
    torch.manual_seed(5)
    model, _ = built("ssd-300", 3)
    fixed = random_boxes(50, 96.0)
    for name, spread in [("random", 2.0), ("sure", 8.0), ("unsure", 0.1)]:
        logits = torch.randint(-32, 33, (50, 4)) / 32.0 * spread
        logits += torch.arange(200).reshape(50, 4) * 1e-4
        offsets = torch.randint(-32, 33, (50, 4)) / 16.0
        offsets[0, 2] = 40.0
        model.score_thresh = 0.2 if name == "unsure" else 0.01
        model.topk_candidates, model.detections_per_img = (10, 12) if name == "sure" else (400, 200)
        found = model.postprocess_detections({"bbox_regression": offsets[None], "cls_logits": logits[None]}, [fixed],
                                             [(90, 100)])[0]
        for key, value in {"logits": logits, "offsets": offsets, "defaults": fixed,
                           "limits": torch.tensor([100.0, 90.0]), "classes": found["labels"],
                           "scores": found["scores"], "corners": found["boxes"]}.items():
            write(f"detect {name}", key, value)


def random_precision(images, classes, generator):
    truths, found = [], []
    for image in range(images):
        for _ in range(generator.integers(1, 9)):
            corner = generator.integers(0, 160, 2) / 2
            size = generator.integers(8, 60, 2) / 2
            box = [*corner, *(corner + size)]
            kind = int(generator.integers(0, classes))
            truths.append([image, kind + 1, *box])
            for _ in range(generator.integers(0, 4)):
                moved = numpy.array(box) + generator.integers(-10, 11, 4) / 2
                moved[2:] = numpy.maximum(moved[2:], moved[:2] + 1)
                seen = kind if generator.random() < 0.8 else int(generator.integers(0, classes))
                found.append([image, seen + 1, generator.random(), *moved])
    return truths, found


def precision():
    generator = numpy.random.default_rng(6)
    cases = {name: random_precision(images, classes, generator)
             for name, images, classes in [("random", 6, 3), ("two", 9, 2), ("one", 3, 1)]}
    # Boxes that SSD-300 found in pictures of blood cells, as an input: see --found.
    cases["bccd"] = of_files(*FOUND) if FOUND else of_table(os.path.join(HERE, "boxes.txt"), "precision bccd")
    for name, (truths, found) in cases.items():
        write(f"precision {name}", "truths", torch.tensor(truths, dtype=torch.float64))
        write(f"precision {name}", "found", torch.tensor(found, dtype=torch.float64))
        for key, values in average_precision(truths, found).items():
            write(f"precision {name}", key, torch.tensor(values, dtype=torch.float64))


def boxes():
    for part in [defaults, matching, suppression, detecting, precision]:
        part()
    return LINES


def paper(names, results=None):
    """Returns whether the paper's networks agree with the engine's."""
    from safetensors.torch import load_file, save_file

    from shared import full
    from shared.origin import commit, machine

    right = True
    for name in names or ["ssd-300", "ssd-512"]:
        model, side = built(name, 20)
        fill(model)
        images = uniform(f"{name} input", (1, 3, side, side)).to(torch.float32)
        listed = ImageList(images, [(side, side)])
        with torch.no_grad():
            anchors = model.anchor_generator(listed, list(model.backbone(images).values()))[0]
        truth = torch.tensor(TRUTHS[0])
        matched = model.proposal_matcher(torchvision.ops.box_iou(truth[:, :4] * side, anchors))
        found = matched >= 0
        labels, codes = torch.zeros(len(anchors)), torch.zeros(len(anchors), 4)
        labels[found] = truth[matched[found], 4]
        codes[found] = model.box_coder.encode_single(truth[matched[found], :4] * side, anchors[found])
        with tempfile.TemporaryDirectory() as folder:
            path = lambda file: os.path.join(folder, file)
            save_file({key: one.contiguous() for key, one in model.state_dict().items()}, path("weights"))
            save_file({"images": images.permute(0, 2, 3, 1).contiguous(), "labels": labels, "codes": codes,
                       "negatives": 3.0 * found.sum()[None], "share": 1.0 / found.sum()[None]}, path("batch"))
            root = os.path.dirname(os.path.dirname(HERE))
            subprocess.run(["cargo", "run", "--quiet", "--profile", os.environ.get("PROFILE", "release"), "--example",
                            "detection", "--", name, "20", path("batch"), path("weights"), path("answer")],
                           cwd=root, check=True)
            ours = load_file(path("answer"))
        with full.Decisions() as narrow:
            single = computed(model, images, TRUTHS[:1], side)
        for one in model.parameters():
            one.grad = None
        with full.Decisions() as wide:
            logits, offsets, loss, gradients = computed(model.double(), images.double(), TRUTHS[:1], side)
        off = lambda found, right, largest=None: ((found.double() - right).abs().max() / (largest or right.abs().max())).item()
        last = lambda tensor: tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor
        answers = max(off(ours[key].reshape(one.shape), one)
                      for key, one in [("logits", logits), ("offsets", offsets), ("loss", loss)])
        largest = max(one.abs().max() for one in gradients.values()).item()
        mine = max(off(ours[key].reshape(last(one).shape), last(one), largest) for key, one in gradients.items())
        theirs = max(off(single[3][key], one, largest) for key, one in gradients.items())
        print(f"{name}: {sum(one.numel() for one in model.parameters())} parameters; answers and loss off by {answers:.1e} of "
              f"the largest, gradients by {mine:.1e} of the largest of all, where PyTorch's own f32 has {theirs:.1e}",
              flush=True)
        # In images this large some rounding of f32 changes a ReLU or the choice of a pooling, which changes single
        # terms of gradients. PyTorch's own f32 gradients are off too, so the engine's may be off by little more.
        agrees = answers <= 1e-5 and mine <= max(1e-5, 10.0 * theirs)
        right = right and agrees
        if results:
            ours = {key: ours[key].reshape(last(one).shape) for key, one in gradients.items()}
            true, of = {key: last(one) for key, one in gradients.items()}, full.sizes(gradients)
            rows, others = ([row for row, _ in full.spread(found, true, of)]
                            for found in (ours, {key: last(one) for key, one in single[3].items()}))
            full.keep(results, {
                "network": name, "parameters": sum(one.numel() for one in model.parameters()), "images": [1, side],
                "answers": answers, "pytorch answers": max(off(found, one) for found, one in zip(single, [logits, offsets, loss])),
                "median": rows[len(rows) // 2], "most": rows[0], "pytorch median": others[len(others) // 2],
                "pytorch most": others[0], "turned": full.turned(narrow, wide), "agrees": agrees, "commit": commit(),
                "machine": machine(), "torch": torch.__version__})
    return right


def same(path, lines):
    """Numbers to seven digits."""
    with open(path) as file:
        old = file.read().split()
    new = "\n".join(lines).split()
    close = lambda a, b: a == b or abs(float(a) - float(b)) <= 2e-6 * max(abs(float(b)), 1e-3)
    return len(old) == len(new) and all(close(a, b) for a, b in zip(old, new))


def main():
    if "--paper" in sys.argv:
        names, results = [name for name in sys.argv[1:] if name != "--paper"], None
        if "--results" in names:
            at = names.index("--results")
            results = names[at + 1]
            del names[at:at + 2]
        sys.exit(0 if paper(names, results) else 1)
    files = {"detection.txt": networks(), "boxes.txt": boxes()}
    for name, lines in files.items():
        path = os.path.join(HERE, name)
        if "--check" in sys.argv:
            if not same(path, lines):
                sys.exit(f"{name} differs")
        else:
            with open(path, "w") as file:
                file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
