#!/usr/bin/env python3
"""Faster R-CNN with VGG-16 against torchvision.

    pip install torch torchvision numpy safetensors
    python3 faster_rcnn.py            write faster_rcnn.txt beside this file
    python3 faster_rcnn.py --check    compute again, exit 1 if a number differs
    python3 faster_rcnn.py --choose   how far PyTorch's f32 is from its f64, for images of several names
    python3 faster_rcnn.py --paper [--side N] [--results DIRECTORY]
                                      the paper's network at full size: answers, losses and gradients of one image; builds
                                      and runs the example `faster_rcnn`

faster_rcnn.txt has lines as vision.txt, of a narrow network: names of tensors are their gradients. Weights are a function
of their names, as in detection.py. The other keys, in pixels and in f64:

  anchors        of an image
  proposed       of each anchor, whether it is something and its code
  proposals      regions of both images in training
  signs          1 for anchors that count and are something, -1 for background that counts
  anchor_codes   of those that are something
  anchor_loss    objectness and boxes
  regions        of both images those that count
  labels         their classes
  region_codes   of those that are something
  region_loss    classes and boxes
  found          with the settings for answers: class, score and corners, of both images

torchvision samples anchors and regions at random. Here those with the smallest random words are taken, which are
derived from names.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision
from torch import nn
from torchvision.models.detection import FasterRCNN, _utils as utils
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import MultiScaleRoIAlign, roi_pool

from detection import SHIFT, same
from vision import NARROW, hashed, line, uniform

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 3
SIZE = (192, 256)
# Shares of the image, and classes; the second image has nothing.
TRUTHS = [[[0.11, 0.2, 0.46, 0.72, 1], [0.5, 0.37, 0.95, 0.91, 2], [0.05, 0.7, 0.223, 0.89, 3]], []]
# Images are drawn from this name: one for which PyTorch's own gradients in f32 are those in f64.
DRAWN = "faster-rcnn 1"


class Sampler:
    """Torchvision's, with words for chance; without a name the first ones."""

    def __init__(self, name, count, share):
        self.name, self.count, self.share = name, count, share

    def __call__(self, labels):
        there, background = [], []
        for image, of in enumerate(labels):
            words = hashed(f"{self.name} {image}", len(of)) if self.name else numpy.arange(len(of))
            words = torch.from_numpy(words.astype(numpy.int64))
            first = lambda places, most: places[torch.argsort(words[places], stable=True)[:most]]
            mask = lambda places: torch.zeros_like(of, dtype=torch.uint8).index_fill_(0, places, 1)
            positive = first(torch.where(of >= 1)[0], int(self.count * self.share))
            negative = first(torch.where(of == 0)[0], self.count - len(positive))
            there.append(mask(positive))
            background.append(mask(negative))
        return there, background


class RoiPool(MultiScaleRoIAlign):
    """The paper's, of features that are halved four times, where torchvision's own models take means of points. They ask
    for that class."""

    def forward(self, features, boxes, _):
        return roi_pool(features["0"], boxes, 7, 1 / 16)


def built(width):
    """Torchvision's, of VGG-16 without its last pooling, with the paper's numbers."""
    of = lambda channels: -(-channels * width // 64)
    backbone = torchvision.models.vgg16().features[:-1]
    for name, layer in backbone.named_children():
        if isinstance(layer, nn.Conv2d):
            inputs = 3 if layer.in_channels == 3 else of(layer.in_channels)
            setattr(backbone, name, nn.Conv2d(inputs, of(layer.out_channels), 3, padding=1))
    backbone.out_channels = of(512)
    model = FasterRCNN(
        backbone, rpn_anchor_generator=AnchorGenerator(((128, 256, 512),), ((0.5, 1.0, 2.0),)),
        box_roi_pool=RoiPool(["0"], 7, 2), box_head=TwoMLPHead(of(512) * 49, of(4096)),
        box_predictor=FastRCNNPredictor(of(4096), CLASSES + 1), rpn_pre_nms_top_n_train=12000,
        rpn_post_nms_top_n_train=2000, rpn_pre_nms_top_n_test=6000, rpn_post_nms_top_n_test=300,
        box_batch_size_per_image=128)
    model.rpn.fg_bg_sampler = Sampler("anchors", 256, 0.5)
    model.roi_heads.fg_bg_sampler = Sampler("regions", 128, 0.25)
    return model


def value(name, shape):
    """Draws a parameter as detection.py does; output layers are small."""
    drawn = uniform(name, shape)
    answers = {"cls_logits": 0.5, "rpn.head.bbox_pred": 0.08, "cls_score": 0.5, "box_predictor.bbox_pred": 0.3}
    factor = next((factor for part, factor in answers.items() if part in name), None)
    if factor is not None:
        drawn = drawn * factor * ((3.0 / shape[1]) ** 0.5 if len(shape) > 1 else 1.0)
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


def targets_of(truths, size, dtype):
    scale = torch.tensor([size[1], size[0]] * 2, dtype=dtype)
    rows = [torch.tensor(truth, dtype=torch.float32).reshape(-1, 5).to(dtype) for truth in truths]
    return [{"boxes": one[:, :4] * scale, "labels": one[:, 4].to(torch.int64)} for one in rows]


def trained(model, images, truths, size, boxes=None):
    """Everything on the way to both losses, and gradients of all parameters; of these regions instead of proposals."""
    model.train()
    kept = {}
    features = {"0": model.backbone(images)}
    listed = ImageList(images, [size] * len(images))
    targets = targets_of(truths, size, images.dtype)
    logits, codes = model.rpn.head([features["0"]])
    rows = lambda answer, each: answer.reshape(len(images), -1, each, *answer.shape[2:]).permute(0, 3, 4, 1, 2).reshape(len(images), -1, each)
    kept["proposed"] = torch.cat([rows(logits[0], 1), rows(codes[0], 4)], 2).detach()
    compute = model.rpn.compute_loss

    def seen(objectness, deltas, labels, right):
        there, background = model.rpn.fg_bg_sampler(labels)
        kept["signs"] = torch.stack([a.double() - b.double() for a, b in zip(there, background)])
        kept["anchor_codes"] = torch.cat(right)[kept["signs"].flatten() > 0]
        return compute(objectness, deltas, labels, right)

    model.rpn.compute_loss = seen
    proposals, of_anchors = model.rpn(listed, features, targets)
    model.rpn.compute_loss = compute
    kept["proposals"] = torch.cat(proposals)
    proposals = proposals if boxes is None else [boxes]
    kept["anchors"] = model.rpn.anchor_generator(listed, [features["0"]])[0]
    regions, _, labels, right = model.roi_heads.select_training_samples(list(proposals), targets)
    kept["regions"], kept["labels"] = torch.cat(regions), torch.cat(labels).double()
    kept["region_codes"] = torch.cat(right)[torch.cat(labels) > 0]
    _, of_regions = model.roi_heads(features, proposals, [size] * len(images), targets)
    kept["anchor_loss"] = sum(of_anchors.values()).detach()[None]
    kept["region_loss"] = sum(of_regions.values()).detach()[None]
    sum([*of_anchors.values(), *of_regions.values()]).backward()
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return kept, gradients


def found(model, images, size):
    model.eval()
    with torch.no_grad():
        features = {"0": model.backbone(images)}
        listed = ImageList(images, [size] * len(images))
        proposals, _ = model.rpn(listed, features)
        results, _ = model.roi_heads(features, proposals, [size] * len(images))
    rows = [torch.cat([one["labels"][:, None], one["scores"][:, None], one["boxes"]], 1) for one in results]
    return torch.cat(rows)


KEYS = ["anchors", "proposed", "proposals", "signs", "anchor_codes", "anchor_loss", "regions", "labels", "region_codes", "region_loss"]


def computed(name, dtype):
    model = built(NARROW)
    fill(model)
    model = model.to(dtype)
    images = uniform(name, (2, 3, *SIZE)).to(torch.float32).to(dtype)
    kept, gradients = trained(model, images, TRUTHS, SIZE)
    kept["found"] = found(model, images, SIZE)
    return kept, gradients


def lines():
    kept, gradients = computed(DRAWN, torch.float64)
    all_of = [f"network faster-rcnn 2 {SIZE[0]} {SIZE[1]}"]
    all_of += [line(key, kept[key]) for key in [*KEYS, "found"]]
    return all_of + [line(key, gradient) for key, gradient in gradients.items()]


def choose():
    """Names of images by how far PyTorch's f32 is from its f64."""
    for i in range(30):
        name = f"faster-rcnn {i}"
        (right, of), (single, mine) = computed(name, torch.float64), computed(name, torch.float32)
        if any(right[key].shape != single[key].shape for key in right):
            print(name, "other shapes", {key: (right[key].shape, single[key].shape) for key in right if right[key].shape != single[key].shape})
            continue
        off = {key: ((single[key].double() - right[key]).abs().max() / right[key].abs().max()).item() for key in right}
        largest = max(one.abs().max() for one in of.values())
        gradient = max(((mine[key].double() - one).abs().max() / largest).item() for key, one in of.items())
        shapes = {key: tuple(right[key].shape) for key in ["proposals", "regions", "region_codes", "anchor_codes", "found"]}
        print(name, f"{gradient:.1e}", {key: f"{one:.0e}" for key, one in off.items()}, shapes, flush=True)


def paper(side, results):
    """Returns whether the paper's network agrees with the engine's."""
    from safetensors.torch import load_file, save_file

    from shared import full
    from shared.origin import commit, machine

    global CLASSES
    CLASSES, size = 20, (side, side)
    model = built(64)
    model.rpn.fg_bg_sampler, model.roi_heads.fg_bg_sampler = Sampler(None, 256, 0.5), Sampler(None, 128, 0.25)
    fill(model)
    images = uniform(DRAWN, (1, 3, side, side)).to(torch.float32)
    target = targets_of(TRUTHS[:1], size, torch.float32)[0]
    truths = torch.cat([target["boxes"], target["labels"][:, None].float()], 1)
    corners = 0.5 * (uniform("corners", (200, 4)) + 1.0) * torch.tensor([0.6, 0.6, 0.3, 0.3]) * side
    boxes = torch.cat([corners[:, :2], corners[:, :2] + corners[:, 2:] + 20.0], 1)
    near = target["boxes"].repeat(12, 1) + uniform("near", (36, 4)) * 0.04 * side
    boxes = torch.cat([near, boxes]).to(torch.float32).clamp(0, side)
    with tempfile.TemporaryDirectory() as folder:
        path = lambda file: os.path.join(folder, file)
        save_file({key: one.contiguous() for key, one in model.state_dict().items()}, path("weights"))
        save_file({"images": images.permute(0, 2, 3, 1).contiguous(), "boxes": boxes, "truths": truths}, path("batch"))
        root = os.path.dirname(os.path.dirname(HERE))
        subprocess.run(["cargo", "run", "--quiet", "--profile", os.environ.get("PROFILE", "release"), "--example",
                        "faster_rcnn", "--", str(CLASSES), path("batch"), path("weights"), path("answer")],
                       cwd=root, check=True)
        ours = load_file(path("answer"))
    with full.Decisions() as narrow:
        single, of_single = trained(model, images, TRUTHS[:1], size, boxes)
    of_single = {key: one.clone() for key, one in of_single.items()}
    model.zero_grad()
    with full.Decisions() as wide:
        right, of = trained(model.double(), images.double(), TRUTHS[:1], size, boxes.double())
    off = lambda found, true, largest=None: ((found.double() - true).abs().max() / (largest or true.abs().max())).item()

    def last(name, tensor):
        if name.endswith("fc6.weight"):
            return tensor.reshape(len(tensor), -1, 7, 7).permute(0, 2, 3, 1)
        return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor

    keys = ["proposed", "anchor_loss", "region_loss"]
    answers = max(off(ours[key].reshape(right[key].shape), right[key]) for key in keys)
    largest = max(one.abs().max() for one in of.values()).item()
    mine = max(off(ours[key].reshape(last(key, one).shape), last(key, one), largest) for key, one in of.items())
    theirs = max(off(of_single[key], one, largest) for key, one in of.items())
    count = sum(one.numel() for one in model.parameters())
    print(f"faster-rcnn at {side} x {side}: {count} parameters, {len(right['labels'])} regions of which "
          f"{int((right['labels'] > 0).sum())} are something; answers and losses off by {answers:.1e} of the largest, gradients by "
          f"{mine:.1e} of the largest of all, where PyTorch's own f32 has {theirs:.1e}")
    # The bound of detection.py.
    agrees = answers <= 1e-5 and mine <= max(1e-5, 10.0 * theirs)
    if results:
        sizes, true = full.sizes(of), {key: last(key, one) for key, one in of.items()}
        found = {key: ours[key].reshape(one.shape) for key, one in true.items()}
        rows, others = ([row for row, _ in full.spread(one, true, sizes)]
                        for one in (found, {key: last(key, one) for key, one in of_single.items()}))
        full.keep(results, {
            "network": "faster-rcnn", "parameters": count, "images": [1, side], "answers": answers,
            "pytorch answers": max(off(single[key], right[key]) for key in keys), "median": rows[len(rows) // 2],
            "most": rows[0], "pytorch median": others[len(others) // 2], "pytorch most": others[0],
            "turned": full.turned(narrow, wide), "agrees": agrees, "commit": commit(), "machine": machine(),
            "torch": torch.__version__})
    return agrees


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--side", type=int, default=600)
    parser.add_argument("--results")
    asked = parser.parse_args()
    if asked.paper:
        sys.exit(0 if paper(asked.side, asked.results) else 1)
    if asked.choose:
        return choose()
    path = os.path.join(HERE, "faster_rcnn.txt")
    if asked.check:
        sys.exit(0 if same(path, lines()) else "faster_rcnn.txt differs")
    with open(path, "w") as file:
        file.write("\n".join(lines()) + "\n")


if __name__ == "__main__":
    main()
