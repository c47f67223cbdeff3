"""PyTorch's side of scripts/against_pytorch.py: the small networks of docs/workloads.md, in the width of their
trainings, each with a training step in f32 on random batches of given sizes.

Networks are torchvision's or those of tests/golden, which are compared with the engine's value by value. They are made
small in the same way as in src/models.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import MultiScaleRoIAlign

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/golden"), str(ROOT / "scripts")]

import detection  # noqa: E402
import gan  # noqa: E402
import language  # noqa: E402
import speech  # noqa: E402
import translation  # noqa: E402
import vision  # noqa: E402
from torch_segnet import SegNet as SegNetBasic  # noqa: E402

# Numbers of classes: CIFAR's, blood cells, CamVid's; letters of ten digits with the blank; pieces of a language;
# characters of Shakespeare.
TEN, CELLS, CAMVID, LETTERS, PIECES, CHARACTERS = 10, 3, 11, 16, 2000, 65


def sgd(model, rate=0.01):
    return torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=5e-4)


def adam(model, rate=1e-3):
    return torch.optim.Adam(model.parameters(), rate)


def adamw(model, rate=1e-3):
    return torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)


class Training:
    """A module with its optimizer. `batch` makes data of sizes that the engine's step had, `loss` is of these."""

    clip = None

    def __init__(self, model, optimizer, layout=torch.contiguous_format):
        self.model, self.layout = model.to(memory_format=layout).train(), layout
        self.optimizer = optimizer(self.model)

    def parameters(self):
        return sum(one.numel() for one in self.model.parameters())

    def images(self, sizes, channels=None):
        """Pixels from 0 to 255 as the engine's are, normalised here."""
        n, h, w, c = sizes
        return (torch.rand(n, channels or c, h, w) * 4 - 2).contiguous(memory_format=self.layout)

    def step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(*batch).backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()


class Classified(Training):
    def batch(self, sizes):
        return self.images(sizes), torch.randint(0, TEN, (sizes[0],))

    def loss(self, x, labels):
        heads = self.model(x)
        heads = list(heads) if isinstance(heads, tuple) else [heads]
        return sum(weight * F.cross_entropy(head, labels) for weight, head in zip([1.0, 0.3, 0.3], heads))


class Segmented(Training):
    """Segmentation with class weights and ignored pixels."""

    def batch(self, sizes):
        n, h, w, _ = sizes
        return self.images(sizes), torch.randint(0, CAMVID + 1, (n, h, w))

    def loss(self, x, labels):
        return F.cross_entropy(self.model(x), labels, torch.ones(CAMVID), ignore_index=CAMVID)


class Detected(Training):
    """Targets are matched on the host, as the engine's are: a step has them ready."""

    def __init__(self, model, optimizer, layout):
        super().__init__(model, optimizer, layout)
        self.boxes = None

    def batch(self, sizes):
        x = self.images(sizes)
        if self.boxes is None:
            with torch.no_grad():
                self.boxes = self.model.head(list(self.model.backbone(x).values()))["cls_logits"].shape[1]
        labels = torch.where(torch.rand(len(x), self.boxes) < 0.03, torch.randint(1, CELLS + 1, (len(x), self.boxes)), 0)
        return x, labels, torch.randn(len(x), self.boxes, 4)

    def loss(self, x, labels, codes):
        """Computes the loss of torchvision's SSD.compute_loss."""
        answers = self.model.head(list(self.model.backbone(x).values()))
        found = labels > 0
        boxes = F.smooth_l1_loss(answers["bbox_regression"][found], codes[found], reduction="sum")
        losses = F.cross_entropy(answers["cls_logits"].flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        negative = torch.where(found, -1.0, losses.detach())
        hard = negative.sort(1, descending=True)[1].sort(1)[1] < 3 * found.sum(1, keepdim=True)
        return (boxes + losses[found].sum() + losses[hard & ~found].sum()) / max(int(found.sum()), 1)


class Proposed(Training):
    """Faster R-CNN. The regions between its two stages are chosen inside the step, as the engine's host does."""

    def batch(self, sizes):
        x = self.images(sizes)
        h, w = sizes[1:3]
        corners = lambda: torch.rand(12, 2) * torch.tensor([w * 0.8, h * 0.8])
        boxes = lambda start: torch.cat([start, start + w * (0.05 + 0.15 * torch.rand(12, 2))], 1)
        labels = lambda: torch.randint(1, CELLS + 1, (12,))
        return x, [{"boxes": boxes(corners()), "labels": labels()} for _ in x]

    def loss(self, x, targets):
        size = [tuple(x.shape[2:])] * len(x)
        features = {"0": self.model.backbone(x)}
        proposals, of_anchors = self.model.rpn(ImageList(x, size), features, targets)
        _, of_regions = self.model.roi_heads(features, proposals, size, targets)
        return sum([*of_anchors.values(), *of_regions.values()])


class Heard(Training):
    def batch(self, sizes):
        n, t, f, _ = sizes
        # Recordings of similar length, as in an epoch that is sorted by length.
        frames = torch.randint(t - t // 8, t + 1, (n,))
        frames[0] = t
        letters = torch.randint(3, 6, (n,))
        return torch.randn(n, t, f, 1), frames, torch.randint(1, LETTERS, (n, 5)), letters

    def loss(self, x, frames, targets, letters):
        y, steps = self.model(x, frames)
        return F.ctc_loss(F.log_softmax(y, -1).transpose(0, 1), targets, steps, letters)


class Translated(Training):
    def batch(self, sizes):
        n, room = sizes[0], sizes[-1]
        lengths = torch.randint(max(room - 7, 1), room + 1, (n,))
        lengths[0] = room
        words = lambda: torch.randint(3, PIECES, (n, room))
        labels = words() * (torch.arange(room) < lengths[:, None])
        return words(), lengths, words(), labels

    def loss(self, source, lengths, target, labels):
        return F.cross_entropy(self.model(source, lengths, target).flatten(0, 1), labels.flatten(), ignore_index=0)


class Dropping(nn.Module):
    """seq2seq as it is trained: dropout on vectors of words, and before the generator."""

    def __init__(self, units):
        super().__init__()
        self.net = translation.Seq2Seq(PIECES, PIECES, units, 1)
        for name in ["source", "target"]:
            setattr(self.net, name, nn.Sequential(getattr(self.net, name), nn.Dropout(0.2)))
        self.net.generator = nn.Sequential(nn.Dropout(0.2), self.net.generator)

    def forward(self, *all):
        return self.net(*all)


class Read(Training):
    """Language model: windows of tokens and their next tokens, gradients clipped to a norm of 1."""

    clip = 1.0

    def batch(self, sizes):
        n, t = sizes[0], sizes[-1]
        return torch.randint(0, CHARACTERS, (n, t)), torch.randint(0, CHARACTERS, (n, t))

    def loss(self, tokens, targets):
        return F.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())


class Carrying(nn.Module):
    """bigLSTM, whose state goes on from window to window."""

    def __init__(self, *sizes):
        super().__init__()
        self.net, self.state = language.BigLstm(*sizes), None

    def forward(self, tokens):
        y, state = self.net.lstm(self.net.tokens(tokens), self.state)
        self.state = [one.detach() for one in state]
        return self.net.softmax(y)


class Made(Training):
    """Two networks in turn: PyTorch's example, by logits."""

    def __init__(self, layout):
        self.layout = layout
        both = [gan.generator(100, 16, 1, 3), gan.discriminator(16, 1, 3)[:-1]]
        self.both = [net.to(memory_format=layout).train() for net in both]
        self.optimizers = [torch.optim.Adam(net.parameters(), 2e-4, (0.5, 0.999)) for net in self.both]

    def parameters(self):
        return sum(one.numel() for net in self.both for one in net.parameters())

    def batch(self, sizes):
        return self.images(sizes), torch.randn(sizes[0], 100, 1, 1)

    def step(self, batch):
        (x, z), (generator, discriminator), (of_g, of_d) = batch, self.both, self.optimizers
        said = lambda images, real: F.binary_cross_entropy_with_logits(
            *(lambda y: (y, torch.full_like(y, real)))(discriminator(images)))
        of_d.zero_grad(set_to_none=True)
        said(x, 1.0).backward()
        made = generator(z)
        said(made.detach(), 0.0).backward()
        of_d.step()
        of_g.zero_grad(set_to_none=True)
        said(made, 1.0).backward()
        of_g.step()


def small_vision(network, width):
    """Torchvision's with the first layers of src/models for small pictures."""
    models = torchvision.models
    conv = lambda kernel, old: nn.Conv2d(3, old.out_channels, kernel, 1, kernel // 2, bias=old.bias is not None)
    if network == "alexnet":
        model = models.alexnet(num_classes=TEN)
        model.features[0] = conv(5, model.features[0])
        model.avgpool, model.classifier[1] = nn.AdaptiveAvgPool2d(3), nn.Linear(9 * 256, 4096)
    elif network == "vgg-16":
        model = models.vgg16(num_classes=TEN)
        model.avgpool, model.classifier[0] = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 4096)
    elif network == "googlenet":
        model = models.googlenet(num_classes=TEN, init_weights=False)
        model.conv1.conv, model.maxpool1 = conv(3, model.conv1.conv), nn.Identity()
    elif network == "inception-v2":
        model = vision.InceptionV2(TEN)
        model.conv1.conv = conv(3, model.conv1.conv)
        model.forward = lambda x, model=model: small_inception_v2(model, x)
    elif network == "inception-v3":
        model = models.inception_v3(num_classes=TEN, aux_logits=False, init_weights=False)
        for layer in [model.Conv2d_1a_3x3, model.Conv2d_2a_3x3, model.Conv2d_4a_3x3]:
            layer.conv.stride, layer.conv.padding = (1, 1), (1, 1)
        model.maxpool1 = nn.Identity()
    else:
        model = getattr(models, network.replace("-", ""))(num_classes=TEN)
        model.conv1, model.maxpool = conv(3, model.conv1), nn.Identity()
    return vision.narrowed(model, width, TEN)


def small_inception_v2(model, x):
    x = F.max_pool2d(model.conv3(model.conv2(model.conv1(x))), 3, 2, 1)
    for name, block in model.named_children():
        if name.startswith("inception"):
            x = block(x)
    return model.fc(x.mean((2, 3)))


def small_ssd(network, width):
    """Torchvision's SSD with batch norm, on fewer maps."""
    ssd = detection.ssd
    features = torchvision.models.vgg16_bn().features
    for layer in features:
        if isinstance(layer, nn.Conv2d):
            layer.bias = None
    backbone = ssd.SSDFeatureExtractorVGG(features, False)
    boxes, dilation, extras = ([4, 6, 6, 4], 2, 3) if network == "ssd-300" else ([4, 6, 6, 4, 4], 3, 4)
    atrous = backbone.extra[0][-1][1]
    atrous.dilation = atrous.padding = (dilation, dilation)
    backbone.extra = backbone.extra[:extras]
    channels = [512, 1024, 512, 256, 256][: len(boxes)]
    model = nn.Module()
    model.backbone, model.head = backbone, ssd.SSDHead(channels, boxes, CELLS + 1)
    return detection.narrowed(model, width)


def small_faster_rcnn(width):
    """Torchvision's Faster R-CNN on VGG-16 with batch norm, which halves three times."""
    of = lambda channels: -(-channels * width // 64)
    layers, pools = [], 0
    for layer in torchvision.models.vgg16_bn().features:
        if isinstance(layer, nn.Conv2d):
            layer = nn.Conv2d(3 if layer.in_channels == 3 else of(layer.in_channels), of(layer.out_channels), 3, padding=1)
        elif isinstance(layer, nn.BatchNorm2d):
            layer = nn.BatchNorm2d(of(layer.num_features))
        elif isinstance(layer, nn.MaxPool2d):
            pools += 1
            if pools > 3:
                continue
        layers.append(layer)
    backbone = nn.Sequential(*layers)
    backbone.out_channels = of(512)
    return FasterRCNN(
        backbone, rpn_anchor_generator=AnchorGenerator(((8, 16, 32, 64),), ((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(["0"], 7, 2), box_head=TwoMLPHead(of(512) * 49, of(4096)),
        box_predictor=FastRCNNPredictor(of(4096), CELLS + 1), rpn_pre_nms_top_n_train=1000, rpn_post_nms_top_n_train=200,
        box_batch_size_per_image=64)


def training(network, layout):
    """A network as docs/workloads.md trains it."""
    match network:
        case "alexnet":
            return Classified(small_vision(network, 16), adam, layout)
        case "vgg-16":
            return Classified(small_vision(network, 8), adam, layout)
        case "googlenet" | "inception-v2" | "inception-v3" | "resnet-18" | "resnet-50":
            return Classified(small_vision(network, 8), sgd, layout)
        case "ssd-300" | "ssd-512":
            return Detected(small_ssd(network, 8), adamw, layout)
        case "faster-rcnn":
            return Proposed(small_faster_rcnn(8), adamw, layout)
        case "segnet-basic":
            return Segmented(SegNetBasic(16, CAMVID), sgd, layout)
        case "segnet":
            return Segmented(vision.narrowed(vision.SegNet(CAMVID), 8, CAMVID), sgd, layout)
        case "deep-speech-2":
            return Heard(speech.DeepSpeech(81, 8, 64, 2, LETTERS), sgd)
        case "seq2seq-1":
            return Translated(Dropping(128), adamw)
        case "biglstm":
            return Read(Carrying(CHARACTERS, 64, 512, 64, 2), adamw)
        case "decoder":
            return Read(language.Decoder(CHARACTERS, 64, 128, 4, 3), adamw)
        case "dcgan":
            return Made(layout)


# Networks for images, for which the memory layout matters.
PICTURES = ["alexnet", "vgg-16", "googlenet", "inception-v2", "inception-v3", "resnet-18", "resnet-50", "ssd-300", "ssd-512",
            "faster-rcnn", "segnet-basic", "segnet", "dcgan"]
