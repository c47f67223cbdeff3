#!/usr/bin/env python3
"""Golden values of the engine's operators, by PyTorch: writes engine.txt beside this file.

    pip install torch torchvision
    python3 engine.py            write engine.txt
    python3 engine.py --check    compute again, exit 1 if a value differs by more than an f32 rounding

PyTorch computes in f64 from f32 inputs, and its results are rounded to f32 once. An f32 engine may therefore differ
only by its own rounding. Inputs are drawn with a seed for each case.

Lines of engine.txt, separated by tabs:

  case  key  n h w c  values

  key       in.NAME or LAYER.NAME: an input, or a parameter of a layer, as the engine calls it
            const.NAME: the same without a gradient; index.NAME: integers
            y: the result (of half weights: none); t: factors of its values, loss = sum of y * t; grad.KEY: gradients of that loss
  init      for the cases called init: what a first value is drawn from, "uniform BOUND" or "normal STD"

All tensors are n h w c: images NHWC, weights [out, kh, kw, in], sequences [n, 1, t, c].
"""

import math
import zlib

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import roi_align, roi_pool

from shared.rows import LINES, draw, finish, write


def add(case, compute, shapes, spread=1.0, const=None, index=None):
    """`shapes`: name to shape n h w c; `compute`: from a dict of tensors to the result, n h w c too."""
    torch.manual_seed(zlib.crc32(case.encode()))
    # Few digits, so that some values are equal and the file is small.
    draw = lambda shape: torch.randint(-32, 33, shape) / 32.0
    tensors = {key: (draw(shape) * spread).requires_grad_() for key, shape in shapes.items()}
    fixed = dict(const or {})
    fixed.update(index or {})
    y = compute({**tensors, **fixed})
    assert y.dim() == 4, (case, y.shape)
    t = draw(y.shape)
    (y * t).sum().backward()
    for key, tensor in {**tensors, **fixed, "y": y, "t": t}.items():
        write(case, key, tensor)
    for key, tensor in tensors.items():
        write(case, f"grad.{key}", tensor.grad)


def points(case, function):
    """Evaluates a function of one number and its derivative at its branch points, between them, and at non-finite
    values."""
    step = 2.0**-22
    all = [-math.inf, -65504.0, -4.0, -3.0 - step, -3.0, -3.0 + step, -2.5, -1.5, -0.5, -2.0**-30, -0.0]
    all += [0.0, 2.0**-30, 0.5, 1.5, 2.5, 3.0 - step, 3.0, 3.0 + step, 3.5, 65504.0, math.inf, math.nan]
    x = torch.tensor(all).reshape(1, 1, 1, -1).requires_grad_()
    y = function(x)
    y.backward(torch.ones_like(y))
    for key, tensor in {"in.x": x, "y": y, "grad.in.x": x.grad}.items():
        write(case, key, tensor)


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def vector(x):
    return x.flatten()


def matrix(x):
    """[out, 1, 1, in] as [out, in]; [n, 1, 1, c] as [n, c]."""
    return x.reshape(x.shape[0], x.shape[3])


def products():
    image = [1, 3, 4, 4]
    for stride, pad, extra, dilation, groups in [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (2, 0, 1, 1, 2), (3, 2, 0, 2, 1)]:
        def conv(v):
            y = F.conv_transpose2d(
                nchw(v["in.x"]), nchw(v["in.w"]), vector(v["in.b"]), stride, pad, extra, groups, dilation)
            return nhwc(y)

        shapes = {"in.x": image, "in.w": [4, 3, 3, 6 // groups], "in.b": [6, 1, 1, 1]}
        add(f"conv_transpose {stride} {pad} {extra} {dilation} {groups}", conv, shapes)

    def layer(v):
        y = F.conv_transpose2d(nchw(v["in.x"]), nchw(v["up.weight"]), vector(v["up.bias"]), 2, 1, 1)
        return nhwc(y)

    add("ConvTranspose2d", layer, {"in.x": image, "up.weight": [4, 3, 3, 2], "up.bias": [2, 1, 1, 1]})
    for groups in [2, 4]:
        grouped = lambda v: nhwc(F.conv2d(
            nchw(v["in.x"]), nchw(v["conv.weight"]), vector(v["conv.bias"]), 1, 1, 1, groups))
        add(f"Conv2d {groups}", grouped,
            {"in.x": image, "conv.weight": [4, 3, 3, 4 // groups], "conv.bias": [4, 1, 1, 1]})
    for stride, pad, dilation, groups in [(1, 2, 1, 1), (2, 0, 2, 2)]:
        # [n, 1, t, c] as [n, c, t]; the weight [out, 1, kernel, in] as [out, in, kernel].
        sequence = lambda x: x.squeeze(1).mT
        time = lambda v: F.conv1d(sequence(v["in.x"]), sequence(v["conv.weight"]), vector(v["conv.bias"]), stride, pad,
                                  dilation, groups).mT.unsqueeze(1)
        add(f"Conv1d {stride} {pad} {dilation} {groups}", time,
            {"in.x": [2, 1, 11, 4], "conv.weight": [6, 1, 5, 4 // groups], "conv.bias": [6, 1, 1, 1]})
    add("matmul", lambda v: v["in.a"] @ v["in.b"], {"in.a": [2, 3, 4, 5], "in.b": [2, 3, 5, 2]})
    add("matmul_transposed", lambda v: v["in.a"] @ v["in.b"].mT, {"in.a": [2, 1, 4, 5], "in.b": [2, 1, 3, 5]})


def functions():
    shape = {"in.x": [2, 3, 4, 4]}
    add("sigmoid", lambda v: torch.sigmoid(v["in.x"]), shape, 6.0)
    add("tanh", lambda v: torch.tanh(v["in.x"]), shape, 4.0)
    add("gelu", lambda v: F.gelu(v["in.x"]), shape, 5.0)
    add("silu", lambda v: F.silu(v["in.x"]), shape, 8.0)
    add("leaky_relu", lambda v: F.leaky_relu(v["in.x"], 0.2), shape, 3.0)
    points("leaky_relu points", lambda x: F.leaky_relu(x, 0.25))
    add("hardswish", lambda v: F.hardswish(v["in.x"]), shape, 7.0)
    points("hardswish points", F.hardswish)
    add("softplus", lambda v: F.softplus(v["in.x"], threshold=1e9), shape, 12.0)
    add("softmax", lambda v: F.softmax(v["in.x"], -1), shape, 8.0)
    # Many turns of a circle.
    add("sin", lambda v: torch.sin(v["in.x"]), shape, 400.0)
    add("cos", lambda v: torch.cos(v["in.x"]), shape, 400.0)


def choices():
    """Selections, of which some are among equal values."""
    both = {"in.a": [2, 3, 4, 5], "in.b": [2, 1, 1, 5]}

    def alike(pair):
        assert (pair[0] == pair[1]).any(), "no equal values"
        return pair

    add("maximum", lambda v: torch.maximum(*alike([v["in.a"], v["in.b"]])), both)
    add("minimum", lambda v: torch.minimum(*alike([v["in.a"], v["in.b"]])), both)
    mask = {"index.rows": torch.tensor([[1, 0, 1, 0, 0], [0, 3, 0, 1, 0]]).reshape(2, 1, 1, 5)}
    add("where", lambda v: torch.where(v["index.rows"] > 0, v["in.a"], v["in.b"]), both, index=mask)
    line = {"in.x": [2, 2, 40, 2]}

    def first(values, dim):
        found, _ = values.sort(dim=dim, descending=True, stable=True)
        assert (found.diff(dim=dim)[:, :, :3] == 0).any(), "no equal values"
        return found

    for axis in range(4):
        add(f"max_axis {axis}", lambda v: v["in.x"].max(axis, keepdim=True)[0], line)
        add(f"min_axis {axis}", lambda v: v["in.x"].min(axis, keepdim=True)[0], line)
        add(f"cumsum {axis}", lambda v: v["in.x"].cumsum(axis), {"in.x": [2, 3, 4, 5]})
    add("top_k 2 3", lambda v: first(v["in.x"], 2)[:, :, :3], line)
    add("top_k 0 1", lambda v: v["in.x"].sort(dim=0, descending=True, stable=True)[0][:1], line)
    add("top_k 3 2", lambda v: v["in.x"].sort(dim=3, descending=True, stable=True)[0], line)


def norms():
    shapes = {"in.x": [2, 3, 2, 6], "norm.scale": [6, 1, 1, 1], "norm.shift": [6, 1, 1, 1]}
    affine = lambda v: (vector(v["norm.scale"]), vector(v["norm.shift"]))
    add("LayerNorm", lambda v: F.layer_norm(v["in.x"], [6], *affine(v), 1e-5), shapes)
    add("GroupNorm 3", lambda v: nhwc(F.group_norm(nchw(v["in.x"]), 3, *affine(v), 1e-5)), shapes)
    add("GroupNorm 1", lambda v: nhwc(F.group_norm(nchw(v["in.x"]), 1, *affine(v), 1e-5)), shapes)
    add("InstanceNorm 1", lambda v: nhwc(F.instance_norm(nchw(v["in.x"]), weight=vector(v["norm.scale"]),
                                                         bias=vector(v["norm.shift"]))), shapes)
    add("InstanceNorm 0", lambda v: nhwc(F.instance_norm(nchw(v["in.x"]))), {"in.x": shapes["in.x"]})
    del shapes["norm.shift"]
    add("RmsNorm", lambda v: F.rms_norm(v["in.x"], [6], vector(v["norm.scale"]), 1e-5), shapes)


def images():
    shape = {"in.x": [1, 5, 7, 2]}
    on = lambda f: lambda v: nhwc(f(nchw(v["in.x"])))
    add("average_pool 2 2", on(lambda x: F.avg_pool2d(x, 2)), shape)
    add("average_pool 3 3", on(lambda x: F.avg_pool2d(x, 3, 2, 1)), shape)
    for size in [(1, 1), (2, 3), (3, 5), (5, 2), (6, 8)]:
        add(f"adaptive_average_pool {size[0]} {size[1]}", on(lambda x: F.adaptive_avg_pool2d(x, size)), shape)
        add(f"adaptive_max_pool {size[0]} {size[1]}", on(lambda x: F.adaptive_max_pool2d(x, size)), shape)
    # Image, left, top, right, bottom: inside, over the edges, without width, far outside.
    boxes = [[0, 1, 2, 7, 9], [1, 0.3, -1.7, 13.9, 5.2], [1, 4.25, 4.25, 4.25, 4.25], [0, -30, -30, -20, -20], [0, 2.6, 6.1, 40, 11]]
    fixed = {"const.boxes": torch.tensor(boxes, dtype=torch.float32).double().reshape(5, 1, 1, 5)}
    for rows, columns, samples in [(2, 3, 2), (1, 1, 3), (7, 7, 1)]:
        align = lambda v: roi_align(v["in.x"].permute(0, 3, 1, 2), v["const.boxes"].reshape(5, 5), (rows, columns), 0.5, samples, True)
        add(f"roi_align {rows} {columns} {samples}", lambda v: align(v).permute(0, 2, 3, 1), {"in.x": [2, 6, 7, 3]}, const=fixed)
    # Largest values that are no ties, so that gradients are certain; corners as they are rounded.
    for rows, columns in [(2, 3), (1, 1), (7, 7)]:
        pool = lambda v: roi_pool(v["in.x"].permute(0, 3, 1, 2), v["const.boxes"].reshape(5, 5), (rows, columns), 0.5)
        add(f"roi_pool {rows} {columns}", lambda v: pool(v).permute(0, 2, 3, 1), {"in.x": [2, 6, 7, 3]}, const=fixed)
    add("upsample_nearest 2 3", on(lambda x: F.interpolate(x, scale_factor=(2, 3), mode="nearest")), shape)
    for corners in [False, True]:
        for size in [(10, 14), (7, 8), (3, 4), (1, 7)]:
            resize = lambda x: F.interpolate(x, size=size, mode="bilinear", align_corners=corners)
            add(f"upsample_bilinear {size[0]} {size[1]} {int(corners)}", on(resize), shape)


def moves():
    shape = {"in.x": [2, 3, 4, 5]}
    add("permute", lambda v: v["in.x"].permute(2, 0, 3, 1), shape)
    add("slice", lambda v: v["in.x"][:, :, 1:3], shape)

    def split(v):
        a, b, c = torch.split(v["in.x"], [1, 3, 1], -1)
        return torch.cat([c, torch.tanh(b), a * a], -1)

    add("split", split, shape)
    rows = torch.tensor([[3, 0, 3], [6, 1, 3]])
    index = {"index.rows": rows.reshape(2, 1, 1, 3)}
    add("Embedding", lambda v: F.embedding(rows, matrix(v["tokens.weight"])).reshape(2, 1, 3, 4),
        {"tokens.weight": [7, 1, 1, 4]}, index=index)


def sequences():
    heads = {"in.q": [2, 3, 4, 5], "in.k": [2, 3, 4, 5], "in.v": [2, 3, 4, 2]}
    for causal in [False, True]:
        attend = lambda v: F.scaled_dot_product_attention(v["in.q"], v["in.k"], v["in.v"], is_causal=causal)
        add(f"attention {int(causal)}", attend, heads, 2.0)
        shapes = {"in.x": [2, 1, 5, 6]}
        for part, outs in [("in", 18), ("out", 6)]:
            shapes[f"attention.{part}.weight"] = [outs, 1, 1, 6]
            shapes[f"attention.{part}.bias"] = [outs, 1, 1, 1]

        def layer(v):
            attention = nn.MultiheadAttention(6, 2, batch_first=True).double()
            names = {"in_proj_weight": "in.weight", "in_proj_bias": "in.bias",
                     "out_proj.weight": "out.weight", "out_proj.bias": "out.bias"}
            given = {key: (matrix if "weight" in key else vector)(v[f"attention.{name}"])
                     for key, name in names.items()}
            x = v["in.x"].squeeze(1)
            mask = nn.Transformer.generate_square_subsequent_mask(5).double() if causal else None
            y, _ = torch.func.functional_call(attention, given, (x, x, x),
                                              {"need_weights": False, "attn_mask": mask})
            return y.unsqueeze(1)

        add(f"SelfAttention {int(causal)}", layer, shapes)
    # Of the third query nothing is to be seen.
    seen = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 2, 0]])
    pairs = {"in.q": [2, 3, 4, 5], "in.k": [2, 3, 3, 5], "in.v": [2, 3, 3, 2]}
    masked = lambda v: F.scaled_dot_product_attention(v["in.q"], v["in.k"], v["in.v"], attn_mask=seen > 0)
    add("attention_with", masked, pairs, 2.0, index={"index.rows": seen.reshape(1, 1, 4, 3)})
    lengths = torch.tensor([3, 5])
    for mask in ["none", "within", "where"]:
        shapes = {"in.x": [2, 1, 4, 6], "in.memory": [2, 1, 5, 3]}
        for part, ins in [("query", 6), ("key", 3), ("value", 3), ("out", 6)]:
            shapes[f"attention.{part}.weight"] = [6, 1, 1, ins]
            shapes[f"attention.{part}.bias"] = [6, 1, 1, 1]
        seen = (torch.arange(4).reshape(4, 1) * 3 + torch.arange(5)) % 4 > 0

        def cross(v):
            attention = nn.MultiheadAttention(6, 2, kdim=3, vdim=3, batch_first=True).double()
            given = {f"{part[0]}_proj_weight": matrix(v[f"attention.{part}.weight"]) for part in ["query", "key", "value"]}
            given["in_proj_bias"] = torch.cat([vector(v[f"attention.{part}.bias"]) for part in ["query", "key", "value"]])
            given |= {"out_proj.weight": matrix(v["attention.out.weight"]), "out_proj.bias": vector(v["attention.out.bias"])}
            hidden = {"within": {"key_padding_mask": torch.arange(5) >= lengths.reshape(2, 1)}, "where": {"attn_mask": ~seen}}
            y, _ = torch.func.functional_call(attention, given, (v["in.x"].squeeze(1), *[v["in.memory"].squeeze(1)] * 2),
                                              {"need_weights": False, **hidden.get(mask, {})})
            return y.unsqueeze(1)

        rows = {"none": None, "within": lengths.reshape(2, 1, 1, 1), "where": seen.long().reshape(1, 1, 4, 5)}[mask]
        add(f"CrossAttention {mask}", cross, shapes, index=None if rows is None else {"index.rows": rows})
    for kind, gates in [("LSTMCell", 4), ("GRUCell", 3)]:
        shapes = {f"in.x{step}": [2, 1, 1, 3] for step in range(3)}
        shapes["in.h"] = [2, 1, 1, 4]
        if gates == 4:
            shapes["in.c"] = [2, 1, 1, 4]
        for part, ins in [("ih", 3), ("hh", 4)]:
            shapes[f"cell.{part}.weight"] = [gates * 4, 1, 1, ins]
            shapes[f"cell.{part}.bias"] = [gates * 4, 1, 1, 1]

        def steps(v):
            cell = getattr(nn, kind)(3, 4).double()
            given = {f"{what}_{part}": (matrix if what == "weight" else vector)(v[f"cell.{part}.{what}"])
                     for part in ["ih", "hh"] for what in ["weight", "bias"]}
            state = matrix(v["in.h"])
            if gates == 4:
                state = (state, matrix(v["in.c"]))
            for step in range(3):
                state = torch.func.functional_call(cell, given, (matrix(v[f"in.x{step}"]), state))
            both = torch.cat(state, -1) if gates == 4 else state
            return both.reshape(2, 1, 1, -1)

        add(kind, steps, shapes)
    for kind, gates in [("LSTM", 4), ("GRU", 3)]:
        for layers, both, packed in [(2, False, False), (2, True, True), (1, True, False)]:
            over_time(kind, gates, layers, both, packed)


def over_time(kind, gates, layers, both, packed):
    """Three sequences of four steps, packed: of 2, 4 and 1; the result is y, the last h and the last c."""
    inputs, hidden, sides = 2, 3, 2 if both else 1
    shapes, names = {"in.x": [3, 1, 4, inputs], "in.h": [layers * sides, 1, 3, hidden]}, []
    if gates == 4:
        shapes["in.c"] = shapes["in.h"]
    for layer in range(layers):
        for end in ["", "_reverse"][:sides]:
            for part, ins in [("ih", sides * hidden if layer else inputs), ("hh", hidden)]:
                names += [f"{what}_{part}_l{layer}{end}" for what in ["weight", "bias"]]
                shapes[f"rnn.{names[-2]}"] = [gates * hidden, 1, 1, ins]
                shapes[f"rnn.{names[-1]}"] = [gates * hidden, 1, 1, 1]

    def compute(v):
        net = getattr(nn, kind)(inputs, hidden, layers, batch_first=True, bidirectional=both).double()
        given = {name: (matrix if "weight" in name else vector)(v[f"rnn.{name}"]) for name in names}
        state = v["in.h"].squeeze(1)
        if gates == 4:
            state = (state, v["in.c"].squeeze(1))
        x = v["in.x"].squeeze(1)
        if packed:
            x = nn.utils.rnn.pack_padded_sequence(x, [2, 4, 1], batch_first=True, enforce_sorted=False)
        y, last = torch.func.functional_call(net, given, (x, state))
        if packed:
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=4)
        parts = [y, *last] if gates == 4 else [y, last]
        return torch.cat([part.flatten() for part in parts]).reshape(1, 1, 1, -1)

    index = {"index.rows": torch.tensor([2, 4, 1]).reshape(3, 1, 1, 1)} if packed else None
    add(f"{kind} {layers} {int(both)} {int(packed)}", compute, shapes, index=index)


def losses():
    shape, number = [3, 2, 2, 3], lambda x: x.reshape(1, 1, 1, 1)
    both = {"in.x": shape, "in.target": shape}
    for beta in [1.0, 0.25]:
        add(f"smooth_l1_loss {beta:g}",
            lambda v: number(F.smooth_l1_loss(v["in.x"], v["in.target"], beta=beta)), both, 2.0)
    torch.manual_seed(7)
    soft = {"const.target": torch.randint(0, 65, shape) / 64.0}
    hard = {"const.target": torch.randint(0, 2, shape).double()}
    bce = lambda v: number(F.binary_cross_entropy_with_logits(v["in.x"], v["const.target"]))
    add("bce_with_logits soft", bce, {"in.x": shape}, 6.0, const=soft)
    add("bce_with_logits hard", bce, {"in.x": shape}, 6.0, const=hard)
    # At 0 both branches of the formula are equal.
    add("bce_with_logits zero", bce, {"in.x": shape}, 0.0, const=hard)

    def focal(alpha, gamma):
        # The loss of torchvision.ops.sigmoid_focal_loss.
        def loss(v):
            x, t = v["in.x"], v["const.target"]
            p = torch.sigmoid(x)
            right = p * t + (1 - p) * (1 - t)
            weight = alpha * t + (1 - alpha) * (1 - t)
            each = F.binary_cross_entropy_with_logits(x, t, reduction="none")
            return number((weight * each * (1 - right) ** gamma).mean())

        return loss

    for alpha, gamma in [(0.25, 2.0), (0.5, 0.0), (0.75, 0.5)]:
        add(f"focal_loss {alpha:g} {gamma:g}", focal(alpha, gamma), {"in.x": shape}, 6.0, const=hard)


def first_values():
    """Records the arguments that torch.nn.init passes to uniform_ and normal_."""
    seen = []
    plain = torch.Tensor.uniform_, torch.Tensor.normal_
    torch.Tensor.uniform_ = lambda self, a=0, b=1, **_: seen.append(f"uniform {b:.9g}") or self
    torch.Tensor.normal_ = lambda self, mean=0, std=1, **_: seen.append(f"normal {std:.9g}") or self
    relu, init = math.sqrt(2), nn.init
    # [out, kh, kw, in] here, [out, in, kh, kw] there.
    for out, kh, kw, ins in [(64, 1, 1, 48), (32, 3, 5, 16)]:
        weight = torch.empty([out, ins, kh, kw] if kh > 1 else [out, ins])
        for name, draw in {
            "KaimingUniform In": lambda: init.kaiming_uniform_(weight, mode="fan_in", nonlinearity="relu"),
            "KaimingUniform Out": lambda: init.kaiming_uniform_(weight, mode="fan_out", nonlinearity="relu"),
            "KaimingNormal In": lambda: init.kaiming_normal_(weight, mode="fan_in", nonlinearity="relu"),
            "KaimingNormal Out": lambda: init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu"),
            "XavierUniform": lambda: init.xavier_uniform_(weight, relu),
            "XavierNormal": lambda: init.xavier_normal_(weight, relu),
            "FanIn": lambda: init.kaiming_uniform_(weight, a=math.sqrt(5)),
        }.items():
            draw()
            LINES.append(f"init {name}\tinit\t{out} {kh} {kw} {ins}\t{seen.pop()}")
    torch.Tensor.uniform_, torch.Tensor.normal_ = plain


def half_weights():
    """A linear layer of half weights under a fixed loss scale: gradients as PyTorch stores them, in half at the scale,
    then unscaled. Products and sums of these inputs are exact in f32, so that only the stores round."""
    torch.manual_seed(zlib.crc32(b"half weights"))
    rows, ins, outs = 96, 5, 3
    x = torch.randint(-31, 32, (rows, ins)) / 1024.0
    t = torch.randint(-31, 32, (rows, outs)) / 64.0
    for exponent in [-20, -14, 0, 17]:
        layer = nn.Linear(ins, outs).half()
        nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
        y = layer(x.half())
        ((y.float() * t.float()).sum() * 2.0**exponent).backward()
        case = f"half weights 2^{exponent}"
        write(case, "in.x", x.reshape(rows, 1, 1, ins))
        write(case, "t", t.reshape(rows, 1, 1, outs))
        for name, gradient in (("weight", layer.weight.grad), ("bias", layer.bias.grad)):
            assert gradient.dtype == torch.half
            # Nine digits tell all f32 apart.
            write(case, f"grad.{name}", (gradient.double() / 2.0**exponent).reshape(1, 1, outs, -1), digits=9)


finish(__file__, [products, functions, choices, norms, images, moves, sequences, losses, half_weights, first_values])
