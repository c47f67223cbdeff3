#!/usr/bin/env python3
"""Training steps of nine networks in PyTorch, for the bench's word `networks`, which measures the same networks in the
engine.

usage: networks.py [--device cpu] [--small] [--count] [--seconds SECONDS] [NETWORK ...]

PyTorch's fastest mixed precision: autocast to half, GradScaler, channels last, fused optimizers, attention by
scaled_dot_product_attention, recurrent layers by cuDNN. The whole step runs eagerly and by torch.compile; the faster of
both is the baseline. First all networks run eagerly, then compiled ones until SECONDS are over. Each figure is printed
as soon as it is known, as a row of a Markdown table; the row without "eager" or "compiled" is the best so far. peers.py
must be in this folder.

Sizes and counts of parameters are those of networks.csv, in this folder or its parent, which the engine checks too.
--count only counts. The vision networks are torchvision's.
"""
import argparse
import csv
import math
import pathlib
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("PyTorch is not installed")

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
from peers import MAX_COMPILE_SECONDS, beside, failed, within  # noqa: E402

# Numbers of networks.rs, which gives their reasons.
WARMUP_STEPS, MIN_STEPS, MAX_STEPS, MAX_SECONDS = 4, 3, 21, 2.5
RATE, SAMPLED_CLASSES, MATCHED_BOXES, NEGATIVES, STEPS_OF_LETTER = 1e-4, (8192, 10), 100, 3, 4
# Weight of the loss of Inception v3's auxiliary head, as in src/models/inception_v3.rs.
AUXILIARY_WEIGHT = 0.4
# Networks bound by elementwise passes, for which compiling is worth its time. cuDNN's recurrent layers are not
# compiled, and VGG is bound by its convolutions.
COMPILED = ["decoder", "resnet-50", "dcgan", "ssd-300", "inception-v3", "vgg-16"]


def rows(small):
    """Returns the rows of networks.csv for one size, by network."""
    found = {}
    with beside("networks.csv").open(newline="") as text:
        for row in csv.DictReader(text):
            if row["size"] == ("small" if small else "paper"):
                numbers = {key: int(row[key]) for key in ["batch", "length", "vocabulary", "parameters", "pytorch"]}
                found[row["network"]] = {**row, **numbers}
    return found


class Training:
    """Training of a network with its optimizer and a random batch. `loss` is computed under autocast."""

    layout = torch.contiguous_format

    def __init__(self, row, small, device):
        self.row, self.small, self.device = row, small, device
        self.n, self.length, self.vocabulary = row["batch"], row["length"], row["vocabulary"]
        with torch.device(device):
            self.model = self.build().to(memory_format=self.layout).train()

    def start(self):
        """Prepares everything that counting parameters does not need, for example the optimizer."""
        # Processors lack kernels of recurrent layers in half: there it is f32, to be seen to run.
        self.is_mixed = self.device == "cuda"
        self.optimizer = self.optimizer_of(self.model.parameters())
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.is_mixed)
        self.batch = self.made()

    def optimizer_of(self, parameters):
        return torch.optim.SGD(parameters, RATE, 0.9, fused=self.is_mixed)

    def parameters(self):
        return sum(one.numel() for one in self.model.parameters())

    def images(self):
        x = torch.rand(self.n, 3, self.length, self.length, device=self.device) * 2 - 1
        return x.contiguous(memory_format=self.layout)

    def words(self, *shape):
        """Returns random words distributed as in a text, frequent ones first: log-uniform, which is near Zipf's law."""
        drawn = torch.exp(torch.rand(*shape, device=self.device, dtype=torch.double) * math.log(self.vocabulary + 1)) - 1
        return drawn.long().clamp(max=self.vocabulary - 1)

    def lengths(self):
        """Returns lengths near the longest, on the host: sentences and recordings are put together by length."""
        return torch.tensor([self.length - i % 8 * self.length // 50 for i in range(self.n)])

    def forward(self, *batch):
        with torch.autocast(self.device, torch.half, enabled=self.is_mixed):
            return self.loss(*batch)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(self.forward(*self.batch)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def compile(self):
        self.forward = torch.compile(self.forward)


def narrowed(model, width, classes):
    """Reduces a network to `width` 64ths of its channels; those of images and answers stay."""
    of = lambda channels: -(-channels * width // 64)
    for parent in model.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Conv2d):
                inputs = layer.in_channels if layer.in_channels == 3 else of(layer.in_channels)
                new = nn.Conv2d(inputs, of(layer.out_channels), layer.kernel_size, layer.stride, layer.padding,
                                layer.dilation, bias=layer.bias is not None)
            elif isinstance(layer, nn.BatchNorm2d):
                new = nn.BatchNorm2d(of(layer.num_features))
            elif isinstance(layer, nn.Linear):
                # The last layer's answers stay.
                outputs = layer.out_features if layer.out_features == classes else of(layer.out_features)
                new = nn.Linear(of(layer.in_features), outputs)
            else:
                continue
            setattr(parent, name, new)
    return model


class Classified(Training):
    layout = torch.channels_last
    name, width = "", 0

    def build(self):
        import torchvision

        model = getattr(torchvision.models, self.name)(num_classes=self.vocabulary)
        return narrowed(model, self.width, self.vocabulary) if self.small else model

    def made(self):
        return self.images(), torch.randint(0, self.vocabulary, (self.n,), device=self.device)

    def loss(self, x, labels):
        return F.cross_entropy(self.model(x), labels)


class ResNet50(Classified):
    name, width = "resnet50", 4


class Vgg16(Classified):
    name, width = "vgg16", 2


class InceptionV3(Classified):
    def build(self):
        from torchvision.models import inception_v3

        # The small one is that of src/models/inception_v3.rs for images of 32 pixels, without an auxiliary head.
        model = inception_v3(num_classes=self.vocabulary, aux_logits=not self.small, init_weights=False)
        if not self.small:
            return model
        for unit in [model.Conv2d_1a_3x3, model.Conv2d_2a_3x3, model.Conv2d_4a_3x3]:
            unit.conv.stride = unit.conv.padding = (1, 1)
        model.maxpool1 = nn.Identity()
        return narrowed(model, 2, self.vocabulary)

    def loss(self, x, labels):
        answers = self.model(x)
        if self.small:
            return F.cross_entropy(answers, labels)
        return F.cross_entropy(answers.logits, labels) + AUXILIARY_WEIGHT * F.cross_entropy(answers.aux_logits, labels)


class Ssd300(Training):
    """Training of SSD-300. Targets are matched on the host, as the engine's are: a step has them ready."""

    layout = torch.channels_last

    def build(self):
        from torchvision.models import vgg16_bn
        from torchvision.models.detection import ssd, ssd300_vgg16

        if not self.small:
            whole = ssd300_vgg16(weights=None, weights_backbone=None, num_classes=self.vocabulary)
            model = nn.Module()
            model.backbone, model.head = whole.backbone, whole.head
            return model
        # As src/models/ssd.rs builds it for small pictures: batch norm, fewer maps.
        features = vgg16_bn().features
        for layer in features:
            if isinstance(layer, nn.Conv2d):
                layer.bias = None
        model = nn.Module()
        model.backbone = ssd.SSDFeatureExtractorVGG(features, False)
        atrous = model.backbone.extra[0][-1][1]
        atrous.dilation = atrous.padding = (2, 2)
        model.backbone.extra = model.backbone.extra[:3]
        narrowed(model, 1, None)
        of = lambda channels: -(-channels // 64)
        model.backbone.scale_weight = nn.Parameter(torch.ones(of(512)) * 20)
        model.head = ssd.SSDHead([of(512), of(1024), of(512), of(256)], [4, 6, 6, 4], self.vocabulary)
        return model

    def answers(self, x):
        return self.model.head(list(self.model.backbone(x).values()))

    def made(self):
        x = self.images()
        with torch.no_grad():
            boxes = self.answers(x)["cls_logits"].shape[1]
        labels = torch.zeros(self.n * boxes, dtype=torch.long)
        labels[::MATCHED_BOXES] = torch.randint(1, self.vocabulary, labels[::MATCHED_BOXES].shape)
        codes = torch.rand(self.n, boxes, 4, device=self.device) * 2 - 1
        return x, labels.view(self.n, boxes).to(self.device), codes

    def loss(self, x, labels, codes):
        """Returns the loss as torchvision's SSD.compute_loss, but without waiting for the device."""
        answers = self.answers(x)
        found = labels > 0
        boxes = F.smooth_l1_loss(answers["bbox_regression"].float(), codes, reduction="none").sum(-1)
        losses = F.cross_entropy(answers["cls_logits"].flatten(0, 1).float(), labels.flatten(), reduction="none")
        losses = losses.view(labels.shape)
        hardest = torch.where(found, -1.0, losses.detach()).argsort(1, descending=True)
        ranks = torch.empty_like(hardest).scatter_(
            1, hardest, torch.arange(labels.shape[1], device=x.device).expand_as(hardest))
        counted = found | (ranks < NEGATIVES * found.sum(1, keepdim=True))
        return ((boxes * found).sum() + (losses * counted).sum()) / found.sum()


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.inside(self.norm1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = self.out(mixed.transpose(1, 2).reshape(n, t, width))
        x = x + F.dropout(mixed, self.dropout, self.training)
        return x + F.dropout(self.linear2(F.gelu(self.linear1(self.norm2(x)))), self.dropout, self.training)


class DecoderModel(nn.Module):
    """The decoder-only transformer of src/models/decoder.rs in PyTorch."""

    def __init__(self, vocabulary, context, width, heads, layers, dropout=0.1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, dropout) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(width), dropout
        for table in [self.tokens, self.places]:
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        x = F.dropout(x, self.dropout, self.training)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Decoder(Training):
    def build(self):
        size = (16, 32, 4, 2) if self.small else (1024, 768, 12, 12)
        return DecoderModel(self.vocabulary, *size)

    def optimizer_of(self, parameters):
        return torch.optim.AdamW(parameters, RATE, weight_decay=0.01, fused=self.is_mixed)

    def made(self):
        return self.words(self.n, self.length), self.words(self.n, self.length)

    def loss(self, tokens, targets):
        return F.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())


class Seq2SeqModel(nn.Module):
    """The translation network of src/models/seq2seq.rs in PyTorch."""

    def __init__(self, words, units, layers, dropout=0.2):
        super().__init__()
        self.source, self.target = nn.Embedding(words, units), nn.Embedding(words, units)
        lstm = lambda: nn.LSTM(units, units, layers, batch_first=True, dropout=dropout)
        self.encoder, self.decoder = lstm(), lstm()
        self.inside, self.out = nn.Linear(units, units, bias=False), nn.Linear(2 * units, units, bias=False)
        self.generator, self.dropout = nn.Linear(units, words), nn.Dropout(dropout)

    def forward(self, source, lengths, behind, target):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.source(source)), lengths, batch_first=True, enforce_sorted=False)
        memory, state = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True, total_length=source.shape[1])
        h, _ = self.decoder(self.dropout(self.target(target)), state)
        scores = (self.inside(h) @ memory.transpose(1, 2)).masked_fill(behind[:, None, :], float("-inf"))
        both = torch.cat([scores.softmax(-1).to(h.dtype) @ memory, h], -1)
        return self.generator(self.dropout(torch.tanh(self.out(both))))


class Seq2Seq(Training):
    def build(self):
        return Seq2SeqModel(self.vocabulary, *((16, 2) if self.small else (1024, 4)))

    optimizer_of = Decoder.optimizer_of

    def made(self):
        words = lambda: self.words(self.n, self.length)
        lengths = self.lengths()
        behind = (torch.arange(self.length) >= lengths[:, None]).to(self.device)
        return words(), lengths, behind, words(), words()

    def loss(self, source, lengths, behind, target, labels):
        return F.cross_entropy(self.model(source, lengths, behind, target).flatten(0, 1), labels.flatten())


class BigLstmModel(nn.Module):
    """The language model of src/models/biglstm.rs in PyTorch, with the loss of src/nn/sampled_softmax.rs."""

    def __init__(self, words, width, hidden, projection, layers, dropout=0.25):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, layers, proj_size=projection, batch_first=True, dropout=dropout)
        self.softmax, self.dropout = nn.Linear(projection, words), nn.Dropout(dropout)

    def forward(self, tokens, labels, of_labels, classes, of_classes, hits):
        x, _ = self.lstm(self.dropout(self.tokens(tokens)))
        x = self.dropout(x).flatten(0, 1)
        weight, bias = self.softmax.weight, self.softmax.bias
        own = (x * F.embedding(labels, weight).to(x.dtype)).sum(1) + bias.index_select(0, labels) - of_labels
        drawn = F.linear(x, F.embedding(classes, weight)) + (bias.index_select(0, classes) - of_classes)
        drawn = torch.where(hits, float("-inf"), drawn)
        return F.cross_entropy(torch.cat([own[:, None].to(drawn.dtype), drawn], 1), torch.zeros_like(labels))


class BigLstm(Training):
    def build(self):
        return BigLstmModel(self.vocabulary, *((16, 32, 16, 2) if self.small else (1024, 8192, 1024, 2)))

    def made(self):
        tokens, labels = self.words(self.n, self.length), self.words(self.n * self.length)
        count, drawn, tries = SAMPLED_CLASSES[self.small], [], 0
        # Different classes by the same law, in the order in which they come.
        seen = set()
        while len(drawn) < min(count, self.vocabulary):
            for word in self.words(count).tolist():
                tries += 1
                if word not in seen and len(drawn) < count:
                    seen.add(word)
                    drawn.append(word)
        classes = torch.tensor(drawn, device=self.device)

        def expected(which):
            chance = torch.log((which.double() + 2) / (which.double() + 1)) / math.log(self.vocabulary + 1)
            return torch.log(-torch.expm1(tries * torch.log1p(-chance))).float()

        return tokens, labels, expected(labels), classes, expected(classes), labels[:, None] == classes

    def loss(self, *batch):
        return self.model(*batch)


class Dcgan(Training):
    """Training of DCGAN, two networks in turn, as PyTorch's example (dcgan/main.py) but with logits; see
    src/models/dcgan.rs."""

    layout = torch.channels_last

    def build(self):
        noise, width, levels = (8, 2, 4) if self.small else (100, 64, 4)
        self.noise = noise
        made, inputs = [], noise
        for level in range(levels + 1):
            outputs = 3 if level == levels else width * 2 ** (levels - 1 - level)
            made.append(nn.ConvTranspose2d(inputs, outputs, 4, *((1, 0) if level == 0 else (2, 1)), bias=False))
            made += [nn.Tanh()] if level == levels else [nn.BatchNorm2d(outputs), nn.ReLU(True)]
            inputs = outputs
        told, inputs = [], 3
        for level in range(levels):
            outputs = width * 2**level
            told.append(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False))
            told += ([nn.BatchNorm2d(outputs)] if level else []) + [nn.LeakyReLU(0.2, inplace=True)]
            inputs = outputs
        told.append(nn.Conv2d(inputs, 1, 4, 1, 0, bias=False))
        return nn.ModuleDict({"generator": nn.Sequential(*made), "discriminator": nn.Sequential(*told)})

    def optimizer_of(self, parameters):
        adam = lambda net: torch.optim.Adam(self.model[net].parameters(), RATE, (0.5, 0.999), fused=self.is_mixed)
        return {net: adam(net) for net in self.model}

    def made(self):
        return self.images(), torch.randn(self.n, self.noise, 1, 1, device=self.device)

    def told(self, images, real):
        y = self.model["discriminator"](images)
        return F.binary_cross_entropy_with_logits(y, torch.full_like(y, real))

    def both(self, x, made):
        with torch.autocast(self.device, torch.half, enabled=self.is_mixed):
            return self.told(x, 1.0) + self.told(made, 0.0)

    def generated(self, z):
        with torch.autocast(self.device, torch.half, enabled=self.is_mixed):
            return self.model["generator"](z)

    def wanted(self, made):
        with torch.autocast(self.device, torch.half, enabled=self.is_mixed):
            return self.told(made, 1.0)

    def compile(self):
        self.both, self.generated, self.wanted = map(torch.compile, [self.both, self.generated, self.wanted])

    def step(self):
        """Runs a step of both networks as the example does: images are generated once."""
        (x, z), optimizers, scaler = self.batch, self.optimizer, self.scaler
        optimizers["discriminator"].zero_grad(set_to_none=True)
        made = self.generated(z)
        scaler.scale(self.both(x, made.detach())).backward()
        scaler.step(optimizers["discriminator"])
        optimizers["generator"].zero_grad(set_to_none=True)
        scaler.scale(self.wanted(made)).backward()
        scaler.step(optimizers["generator"])
        scaler.update()


class DeepSpeechModel(nn.Module):
    """src/models/deepspeech.rs. Frames before the ends are picked by places that the host knows."""

    def __init__(self, frequencies, channels, hidden, layers, characters):
        super().__init__()
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for inputs, wide, stride in [(1, 41, (2, 2)), (channels, 21, (1, 2))]:
            self.convolutions.append(nn.Conv2d(inputs, channels, (11, wide), stride, (5, wide // 2), bias=False))
            self.norms.append(nn.BatchNorm1d(channels))
            frequencies = (frequencies + 1) // 2
        width = frequencies * channels
        self.grus, self.between = nn.ModuleList(), nn.ModuleList()
        for layer in range(layers):
            self.between.append(nn.BatchNorm1d(width) if layer else nn.Identity())
            self.grus.append(nn.GRU(width, hidden, batch_first=True, bidirectional=True))
            width = hidden
        self.norm, self.characters = nn.BatchNorm1d(width), nn.Linear(width, characters)

    @staticmethod
    def normal(norm, x, places):
        """Normalises the channels of frames before the ends in [n, t, ..., c]; frames after the ends become 0."""
        flat = x.flatten(0, 1)
        # Not flat[places], because its gradient sorts the positions.
        valid = flat.index_select(0, places)
        y = norm(valid.reshape(-1, x.shape[-1])).reshape(valid.shape)
        return torch.zeros_like(flat, dtype=y.dtype).index_copy(0, places, y).view(x.shape)

    def forward(self, x, steps, places):
        for conv, norm in zip(self.convolutions, self.norms):
            # Channels last: both are views.
            x = conv(x).permute(0, 2, 3, 1)
            x = F.hardtanh(self.normal(norm, x, places), 0.0, 20.0).permute(0, 3, 1, 2)
        x = x.permute(0, 2, 3, 1).flatten(2)
        for norm, gru in zip(self.between, self.grus):
            x = x if isinstance(norm, nn.Identity) else self.normal(norm, x, places)
            packed = nn.utils.rnn.pack_padded_sequence(x, steps, batch_first=True, enforce_sorted=False)
            y, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=x.shape[1])
            x = y.unflatten(-1, (2, -1)).sum(2)
        return self.characters(self.normal(self.norm, x, places))


class DeepSpeech2(Training):
    layout = torch.channels_last

    def build(self):
        self.frequencies = 33 if self.small else 161
        return DeepSpeechModel(self.frequencies, *((4, 16, 2) if self.small else (32, 800, 5)), self.vocabulary)

    def made(self):
        frames = self.lengths()
        steps = (frames + 1) // 2
        x = torch.rand(self.n, 1, self.length, self.frequencies, device=self.device) * 2 - 1
        x *= (torch.arange(self.length) < frames[:, None]).to(self.device)[:, None, :, None]
        before = torch.arange((self.length + 1) // 2) < steps[:, None]
        room = max(self.length // STEPS_OF_LETTER // 2, 1)
        targets = torch.randint(1, self.vocabulary, (self.n, room), device=self.device)
        places = before.flatten().nonzero().squeeze(1).to(self.device)
        return x, steps, places, targets, steps // STEPS_OF_LETTER

    def loss(self, x, steps, places, targets, letters):
        y = self.model(x, steps, places)
        log = F.log_softmax(y.float(), -1).transpose(0, 1)
        return F.ctc_loss(log, targets, steps, letters, reduction="none").mean()


NETWORKS = {
    "resnet-50": ResNet50,
    "vgg-16": Vgg16,
    "inception-v3": InceptionV3,
    "ssd-300": Ssd300,
    "decoder": Decoder,
    "seq2seq": Seq2Seq,
    "dcgan": Dcgan,
    "biglstm": BigLstm,
    "deep-speech-2": DeepSpeech2,
}


def built(network, small, device):
    """Builds a network, and checks that its number of parameters is that of networks.csv."""
    row = rows(small)[network]
    training = NETWORKS[network](row, small, device)
    count = training.parameters()
    if device == "meta":
        print(f"network {network}: {count} parameters here, {row['parameters']} in the engine {row['why']}", flush=True)
    if count != row["pytorch"]:
        raise ValueError(f"networks.csv has {row['pytorch']} parameters")
    return training


def units(network, row):
    return row["batch"] * (row["length"] if row["unit"] != "images" else 1)


def seconds_a_step(training):
    """Returns the median seconds of steps that follow each other without a wait of the host."""
    for _ in range(WARMUP_STEPS):
        training.step()
    if training.device != "cuda":
        times = []
        for _ in range(MIN_STEPS):
            start = time.perf_counter()
            training.step()
            times.append(time.perf_counter() - start)
        return statistics.median(times)
    mark = lambda: torch.cuda.Event(enable_timing=True)
    marks, start = [mark()], time.perf_counter()
    marks[0].record()
    while len(marks) <= MIN_STEPS or (len(marks) <= MAX_STEPS and time.perf_counter() - start < MAX_SECONDS):
        training.step()
        marks.append(mark())
        marks[-1].record()
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(second) / 1e3 for first, second in zip(marks, marks[1:]))


def measured(network, small, device, compiles, best, limit):
    """Measures a network and prints its rows."""
    training, way = None, "compiled" if compiles else "eager"
    try:
        training = built(network, small, device)
        training.start()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if compiles:
            training.compile()
            within(limit, training.step)
        seconds = seconds_a_step(training)
    # One that is not to be had here does not stop the others.
    except Exception as error:
        failed(f"network {network}, PyTorch AMP {way}", error)
        return
    finally:
        del training
        torch.compiler.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
    row = rows(small)[network]
    peak = f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB" if device == "cuda" else ""
    cells = f"{units(network, row) / seconds:.1f} {row['unit']}/s | {1e3 * seconds:.2f} ms | {peak} |"
    print(f"| network {network}, PyTorch AMP {way} | {cells}", flush=True)
    if seconds < best.get(network, math.inf):
        best[network] = seconds
        print(f"| network {network}, PyTorch AMP | {cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--count", action="store_true", help="count parameters and end")
    parser.add_argument("--seconds", type=float, default=120, help="after so many no step is compiled any more")
    asked = parser.parse_args()
    if unknown := [name for name in asked.networks if name not in NETWORKS]:
        parser.error(f"{unknown[0]} is no network; they are: {', '.join(NETWORKS)}")
    chosen = asked.networks or list(NETWORKS)
    try:
        rows(asked.small)
    except FileNotFoundError as error:
        sys.exit(str(error))
    # Checked before anything is measured, because only the engine's own network is a valid peer.
    wrong = []
    for network in chosen:
        try:
            built(network, asked.small, "meta")
        except ValueError as error:
            wrong.append(network)
            print(f"network {network}: {error}", flush=True)
        # Not "not here", which record.py would take for the verdict on the whole phase, although the other networks are
        # measured.
        except ImportError as error:
            wrong.append(network)
            print(f"network {network}: this Python lacks {error.name}", flush=True)
    if asked.count:
        sys.exit(bool(wrong))
    if len(wrong) == len(chosen):
        sys.exit("not here: what the networks need")
    if asked.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    start, best = time.monotonic(), {}
    print(f"PyTorch {torch.__version__}, autocast to half, GradScaler, fused optimizers\n", flush=True)
    print("| what | PyTorch | a step | peak memory |\n|---|---|---|---|", flush=True)
    for network in [name for name in chosen if name not in wrong]:
        measured(network, asked.small, asked.device, False, best, 0)
    for network in COMPILED:
        left = asked.seconds - (time.monotonic() - start)
        if network in best and left > 0:
            measured(network, asked.small, asked.device, True, best, min(left, MAX_COMPILE_SECONDS))


if __name__ == "__main__":
    main()
