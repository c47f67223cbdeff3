"""Operators that only GPUs have, by substitutes on the CPU: with autograd's own nodes, and with CUDA's restrictions on
types."""

import contextlib
import copy
import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import GradientScaling, attach, fused, graph, stores  # noqa: E402
from test_torch_modules import LAYERS  # noqa: E402
from torch_models import Flash, attention, error, halved, overflow_repeats, probabilities  # noqa: E402

torch.set_num_threads(1)
#: Types that a substitute has received, for tests that check them.
SEEN = []


def halves_only(kernel, *tensors):
    """Raises where CUDA's kernel would."""
    types = {x.dtype for x in tensors if x is not None}
    SEEN.append((kernel, types))
    if len(types) > 1 or not types <= {torch.float16, torch.bfloat16}:
        raise RuntimeError(f"{kernel} takes halves, not {types}")


def attention_backward(gradient, q, k, v, causal=False, bias=0.0, scale=None):
    """Computed by hand, because there is no autograd inside an operator."""
    scale = scale or q.shape[-1] ** -0.5
    p = probabilities(q, k, causal, bias, scale)
    dp = gradient @ v.transpose(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ gradient


def by_tokens(x):
    """The same values in the order of memory that flash attention's have."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def flash(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    halves_only("flash forward", query, key, value)
    # Products add in an order that strides decide, which a compiler changes.
    out = attention(*(x.float().contiguous() for x in (query, key, value)), is_causal, scale=scale).to(query.dtype)
    out, sums = by_tokens(out), torch.zeros(query.shape[:3])
    seed = torch.zeros(2, dtype=torch.uint64)
    none = torch.zeros(0, dtype=torch.int32)
    return out, sums, none, none, query.shape[2], key.shape[2], seed, torch.zeros((), dtype=torch.uint64), query.new_zeros(0)


def flash_backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset,
    *, scale=None,
):
    halves_only("flash backward", grad_out, query, key, value, out)
    wide = [x.float().contiguous() for x in (grad_out, query, key, value)]
    return tuple(by_tokens(g.to(query.dtype)) for g in attention_backward(*wide, is_causal, scale=scale))


def efficient(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    out = attention(query.float(), key.float(), value.float(), is_causal, attn_bias.float()).to(query.dtype)
    number = torch.zeros((), dtype=torch.int64)
    return out, torch.zeros(query.shape[:3]), number, number


def efficient_backward(
    grad, query, key, value, attn_bias, out, logsumexp, seed, offset, dropout_p, grad_input_mask, is_causal=False, *, scale=None
):
    SEEN.append(("efficient backward", {x.dtype for x in (grad, query, key, value, attn_bias, out)}))
    if len(SEEN[-1][1]) > 1 or any(stride % 4 for stride in attn_bias.stride()[:-1]):
        raise RuntimeError(f"attn_bias is not correctly aligned: {attn_bias.stride()}, {SEEN[-1]}")
    return *attention_backward(grad, query, key, value, is_causal, attn_bias), None


def rnn(x, hx, weight):
    w, u, b, c = weight
    h, out = hx[0], []
    for t in x:
        h = torch.tanh(t @ w.T + b + h @ u.T + c)
        out.append(h)
    return torch.stack(out), h[None]


def cudnn_rnn(x, weight, stride, buffer, hx, cx, *rest):
    out, hy = rnn(x.float(), hx.float(), [w.float() for w in weight])
    out, hy = out.to(x.dtype), hy.to(x.dtype)
    return out, hy, x.new_zeros(0), torch.ones(4, dtype=torch.uint8) * x.element_size(), x.new_zeros(0)


def cudnn_rnn_backward(x, weight, stride, buffer, hx, cx, out, grad_out, grad_hy, grad_cy, *rest):
    reserve = rest[-2]
    SEEN.append(("rnn backward", {y.dtype for y in (x, *weight, hx, out, grad_out, grad_hy) if y is not None}))
    if len(SEEN[-1][1]) > 1 or (reserve != x.element_size()).any():
        raise RuntimeError(f"CUDNN_STATUS_BAD_PARAM: {SEEN[-1]}, {reserve}")
    reserve.fill_(99)  # cuDNN writes there, too
    xs, gs, (w, u, *_) = x.float(), torch.zeros(len(x), *hx.shape[1:]), [y.float() for y in weight]
    hs = rnn(xs, hx.float(), [y.float() for y in weight])[0]
    gs = gs if grad_out is None else grad_out.float()
    dh = torch.zeros_like(hx[0], dtype=torch.float32) if grad_hy is None else grad_hy[0].float()
    dx, dw, du, db = torch.zeros_like(xs), torch.zeros_like(w), torch.zeros_like(u), torch.zeros(len(w))
    for t in reversed(range(len(xs))):
        da = (dh + gs[t]) * (1 - hs[t] ** 2)
        before = hs[t - 1] if t else hx[0].float()
        dx[t], dh = da @ w, da @ u
        dw, du, db = dw + da.T @ xs[t], du + da.T @ before, db + da.sum(0)
    return dx.to(x.dtype), dh[None].to(x.dtype), x.new_zeros(0), [y.to(x.dtype) for y in (dw, du, db, db.clone())]


def cudnn_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    y, saved_mean, invstd = torch.native_batch_norm(x.float(), weight, bias, mean, var, training, momentum, eps)
    return y.to(x.dtype), saved_mean, invstd, torch.ones(8, dtype=torch.uint8)


def refuse(*args):
    raise RuntimeError("CUDNN_STATUS_BAD_PARAM: the reserve of another type")


STAND_INS = {
    "_scaled_dot_product_flash_attention": flash,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
    "_scaled_dot_product_efficient_attention": efficient,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "_cudnn_rnn": cudnn_rnn,
    "_cudnn_rnn_backward": cudnn_rnn_backward,
    "cudnn_batch_norm": cudnn_batch_norm,
    "cudnn_batch_norm_backward": refuse,
}


@contextlib.contextmanager
def stand_ins_in_place():
    SEEN.clear()
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in STAND_INS.items():
        # No kernel knows of autocast.
        library.impl(name, torch.autocast("cpu", enabled=False)(kernel), "CPU")
    try:
        yield
    finally:
        library._destroy()


@pytest.fixture(autouse=True)
def stand_ins():
    with stand_ins_in_place():
        yield


def against_f64(model, x, scale, late=None):
    """Errors of a model's gradients and of its input's, against f64."""
    twin = copy.deepcopy(model).double()
    one, two = x.clone().requires_grad_(), x.double().requires_grad_()
    gs = attach(model, deferred=late)
    torch.manual_seed(1)
    out = model(one)
    r = torch.randn(out.shape)
    ((out * r).sum() * scale).backward()
    ((twin(two) * r.double()).sum() * scale).backward()
    found, true = ([p.grad for p in [*m.parameters(), i]] for m, i in ((model, one), (twin, two)))
    gs.update()
    return gs, error(found, true)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("shift", [-45, -24, 0, 12])
def test_attention_in_half(shift, late):
    torch.manual_seed(0)
    model, x = halved(Flash()), torch.randn(2, 7, 16).half().float()
    twin_error = against_f64(model, x, 2.0**shift, late)[1]
    assert twin_error < 3e-3
    kernels = [kernel for kernel, _ in SEEN]
    assert kernels.count("flash backward") >= 2  # looked at, then run


class Uneven(Flash):
    """A kernel whose results are many times as large, or as small, as its incoming gradient."""

    def __init__(self, queries, keys, values):
        super().__init__()
        self.factors = queries, keys, values

    def attend(self, *qkv):
        return super().attend(*(x * factor for x, factor in zip(qkv, self.factors)))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("factors", [(2.0**-12, 2.0**12, 2.0**8), (2.0**-6, 2.0**-6, 2.0**-9)])
def test_the_first_step_knows_the_results(factors, late):
    """Gradients of queries that are 2^20 times the incoming gradient would overflow; those that are 2^-15 of it
    would flush."""
    torch.manual_seed(0)
    model, x = halved(Uneven(*factors)), torch.randn(2, 7, 16).half().float()
    twin = copy.deepcopy(model).double()
    attach(model, deferred=late)
    r = torch.randn(2, 7, 5)
    ((model(x) * r).sum() * 2.0**-24).backward()
    ((twin(x.double()) * r).sum() * 2.0**-24).backward()
    for part in range(3):  # queries, keys, values
        found, true = (m.project.weight.grad[16 * part : 16 * part + 16] for m in (model, twin))
        assert error([found], [true]) < 1e-2, part


def test_results_count_at_the_site_of_what_arrives():
    torch.manual_seed(0)
    model, x = halved(Flash()), torch.randn(2, 7, 16).half().float()
    gs, _ = against_f64(model, x, 2.0**-24)
    name = "project>scaled_dot_product_attention"
    assert name in gs.sites.names
    row = gs.sites.row(gs.sites.names.index(name))
    assert row.count == 4 * x.numel()  # the gradient of the output; of queries, keys and values


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("format", ["fp16", "e5m2", "e4m3"])
def test_an_overflow_in_the_kernel_repeats_the_batch(late, format):
    overflow_repeats(torch.device("cpu"), late, f"gs:interval=100,grad={format}")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("format", ["e5m2", "e4m3"])
@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.0), (2.0**-8, 2.0**8, 2.0**6)])
def test_kernels_take_values_of_eight_bits(late, format, factors):
    """The row has what is stored in the format; the kernel's results, which are halves, take their room."""
    torch.manual_seed(0)
    model, x = halved(Uneven(*factors)), torch.randn(2, 7, 16).half().float()
    twin, taken = copy.deepcopy(model).double(), []
    gs = attach(model, f"gs:grad={format}", deferred=late)
    r, kernel = torch.randn(2, 7, 5), fused.call

    def call(*args):
        out = kernel(*args)
        taken.append(out)
        return out

    fused.call = call
    try:
        ((model(x) * r).sum() * 2.0**-24).backward()
    finally:
        fused.call = kernel
    ((twin(x.double()) * r).sum() * 2.0**-24).backward()
    found, true = (m.project.weight.grad for m in (model, twin))
    assert len(taken) == 1 and all(result.isfinite().all() for result in taken[0][0])
    for part in range(3):
        some = slice(16 * part, 16 * part + 16)
        assert 1e-3 < error([found[some]], [true[some]]) < 0.2, part
    gs.update()
    if late:  # The rows of this step are read in the next.
        model(x).sum().backward()
        gs.update()
    row = gs.sites.row(gs.sites.names.index("project>mul>scaled_dot_product_attention"))
    assert row.format == format and row.count == 4 * x.numel() and row.overflowed == 0
    assert row.flushed + row.subnormal <= 0.2 * x.numel()


def test_infinities_that_arrive_are_none_of_the_kernel():
    torch.manual_seed(0)
    model, x = Flash(), torch.randn(2, 7, 16)
    gs = attach(model)
    (model(x).sum() * 2.0**-20).backward()
    assert gs.update().stepped
    (model(x).sum() * torch.inf).backward()
    assert not gs.update().stepped and gs.outcome.non_finite in ("infinite", "nan") and gs.outcome.site_name == "head"
    row = gs.sites.row(gs.sites.names.index("project>scaled_dot_product_attention"))
    assert row.overflowed == 0 < row.infinite + row.nan


def test_compiled_with_the_bits_of_eager():
    def train(compiled):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Flash()
        gs = attach(model, "gs:interval=2")
        forward = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(4):
            optimizer.zero_grad()
            with torch._dynamo.config.patch(error_on_recompile=step > 0):
                (forward(torch.randn(2, 7, 16)).square().mean() * 2.0**-30).backward()
            optimizer.step()
            assert gs.update().stepped
        rows = {name: gs.sites.row(i) for i, name in enumerate(gs.sites.names)}
        return [p.grad for p in model.parameters()], rows, dict(zip(gs.sites.names, gs.sites.exponents.tolist()))

    eager, compiled = train(False), train(True)
    assert eager[1:] == compiled[1:]
    assert all(torch.equal(a, b) for a, b in zip(eager[0], compiled[0]))


def test_bfloat16_goes_through():
    torch.manual_seed(0)
    model = halved(Flash())
    gs = GradientScaling()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.randn(2, 7, 16))
    gs.backward(out.float().sum() * 2.0**-60)
    gs.update()
    assert ("flash backward", {torch.bfloat16}) in SEEN
    assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in model.parameters())


class Masked(Flash):
    """A mask of rows that are no multiple of four, padded as PyTorch pads it."""

    def attend(self, q, k, v):
        n = q.shape[-2]
        mask = torch.zeros(n, 8, dtype=q.dtype)[:, :n].expand(q.shape[0], q.shape[1], n, n)
        if q.dtype == torch.float64:
            return attention(q, k, v)
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, mask, True)[0]


def test_the_bias_of_attention_stays_aligned():
    torch.manual_seed(0)
    assert against_f64(halved(Masked()), torch.randn(2, 7, 16).half().float(), 2.0**-24)[1] < 3e-3
    assert ("efficient backward", {torch.float32}) in SEEN


class Normed(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x):
        x, n = self.conv(x), self.norm
        if x.dtype == torch.float64:
            x = n(x)
        elif self.kind == "update":  # where a model is exported
            x = torch.ops.aten._batch_norm_with_update(x, n.weight, n.bias, n.running_mean, n.running_var, n.momentum, n.eps)[0]
        else:
            x = torch.cudnn_batch_norm(x, n.weight, n.bias, n.running_mean, n.running_var, True, n.momentum, n.eps)[0]
        return self.head(x.relu().mean((2, 3)))


@pytest.mark.parametrize("kind", ["cudnn", "update"])
def test_batch_norms_of_others(kind):
    torch.manual_seed(0)
    gs, off = against_f64(halved(Normed(kind)), torch.randn(4, 3, 6, 6).half().float(), 2.0**-30)
    assert off < 3e-3 and "norm/batch_norm>relu" in gs.sites.names


class Recurrent(nn.Module):
    def __init__(self, ratio):
        super().__init__()
        self.pre, self.rnn, self.head, self.ratio = nn.Linear(5, 6), nn.RNN(6, 6), nn.Linear(6, 4), ratio

    def forward(self, x):
        x, weights = self.pre(x), self.rnn._flat_weights
        hx = x.new_zeros(1, x.shape[1], 6)
        if x.dtype == torch.float64:
            out, hy = rnn(x, hx, weights)
        else:
            weights = [w.to(x.dtype) for w in weights]
            out, hy = torch.ops.aten._cudnn_rnn(
                x, weights, 4, None, hx, None, 1, 6, 0, 1, False, 0.0, True, False, [], None
            )[:2]
        return self.head(out).sum(0) + self.head(hy)[0] * self.ratio


@pytest.mark.parametrize("ratio", [1.0, 2.0**-14, 2.0**14])
def test_recurrent_layers_in_half(ratio):
    """Gradients of all steps and of the last step, which may have different exponents."""
    torch.manual_seed(0)
    model = halved(Recurrent(ratio))
    gs, off = against_f64(model, torch.randn(3, 4, 5).half().float(), 2.0**-30)
    assert off < 4e-3 and ("rnn backward", {torch.float16}) in SEEN
    assert "rnn/rnn" in gs.sites.names


def test_unlike_exponents_are_brought_to_one():
    """Values at the exponents 40 and -10 are brought to one exponent for a kernel, on host and device."""
    library = torch.library.Library("gradscale_test_halves", "DEF")
    library.define("half_only_backward(Tensor a, Tensor b, Tensor saved) -> Tensor")
    exponents = []

    def kernel(a, b, saved):
        halves_only("both", a, b, saved)
        exponents.append((float(a[0]), float(b[0])))
        return a + b

    library.impl("half_only_backward", kernel, "CPU")
    function = torch.ops.gradscale_test_halves.half_only_backward.default
    for late in (False, True):
        gs = GradientScaling(deferred=late)
        gs._open_once(torch.device("cpu"))
        number = (lambda e: e) if not late else (lambda e: torch.tensor(e, dtype=torch.int32))
        a, b = torch.tensor([3.0, 5.0]), torch.tensor([7.0, 11.0])
        args = [a, b, torch.ones(2).half()]
        out, exponent = gs._call_fused(function, args, {}, [0, 1], [number(40), number(39)], "x", 1)
        assert torch.equal(out * 2.0 ** -int(exponent), a * 2.0**-40 + b * 2.0**-39)
        assert exponents[-1][1] / exponents[-1][0] == 14 / 3
    library._destroy()


def test_recurrent_modules_run_in_f32_on_every_device(monkeypatch):
    """Also on machines without such a device: autocast is turned off for the device type of the weights."""
    from gradscale.torch.attach import InF32

    asked = []
    layer = nn.LSTM(3, 3).to("meta")
    monkeypatch.setattr(torch, "autocast", lambda device, **options: asked.append((device, options)) or torch.no_grad())
    InF32(layer)(torch.zeros(2, 1, 3, dtype=torch.float16, device="meta"))
    assert asked == [("meta", {"enabled": False})]


def test_packed_sequences():
    torch.manual_seed(0)

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(x.detach(), torch.tensor([4, 2]))
            return self.head(nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])[0]) + 0 * x[..., :1]

    assert against_f64(halved(Packed()), torch.randn(4, 2, 3).half().float(), 2.0**-30)[1] < 3e-3


# Names

#: Earlier name of a site, by device, and its current name.
NAMES = [
    ("norm/native_batch_norm", "norm/batch_norm"),
    ("norm/cudnn_batch_norm", "norm/batch_norm"),
    ("a.0/miopen_batch_norm.1>relu[2]", "a.0/batch_norm.1>relu[2]"),
    ("a.0/native_batch_norm_no_training/part[1]", "a.0/batch_norm/part[1]"),
    ("qkv>scaled_dot_product_flash_attention_for_cpu", "qkv>scaled_dot_product_attention"),
    ("qkv>scaled_dot_product_flash_attention", "qkv>scaled_dot_product_attention"),
    ("qkv>scaled_dot_product_efficient_attention>to_copy", "qkv>scaled_dot_product_attention>to_copy"),
    ("qkv>scaled_dot_product_cudnn_attention.1", "qkv>scaled_dot_product_attention.1"),
    ("conv/cudnn_convolution", "conv"),
    ("conv/miopen_convolution>relu", "conv>relu"),
    ("fc/mkldnn_linear", "fc"),
    ("x>native_dropout", "x>mul"),
    ("x>cudnn_grid_sampler", "x>grid_sampler_2d"),
    ("x>cudnn_ctc_loss", "x>ctc_loss"),
    ("lstm.weight_ih_l1/mkldnn_rnn_layer>to_copy", "lstm/rnn>to_copy"),
    ("lstm.weight_ih_l0/cudnn_rnn", "lstm/rnn"),
    ("weight_ih_l0_reverse/miopen_rnn.1>to_copy", "rnn>to_copy"),
    ("gru.bias_hh_l0>unsafe_split.1>sigmoid>mul>to_copy", "gru/rnn>to_copy"),
    ("rnn.bias_hh_l0>tanh>to_copy>bmm", "rnn/rnn>to_copy>bmm"),
    ("head", "head"),
    ("head.1", "head.1"),
    ("input>log_softmax", "input>log_softmax"),
    ("cell.bias_ih/thnn_fused_lstm_cell", "cell.bias_ih/thnn_fused_lstm_cell"),
    ("a/native_batch_norm>rel…0badcafe", "a/native_batch_norm>rel…0badcafe"),
]


@pytest.mark.parametrize("old, new", NAMES)
def test_old_names(old, new):
    assert graph.renamed(old) == new and graph.renamed(new) == new


class Node:
    def __init__(self, name):
        self.name = lambda: name


@pytest.mark.parametrize(
    "nodes, name",
    [
        ("NativeBatchNorm CudnnBatchNorm MiopenBatchNorm NativeBatchNormLegit NativeBatchNormLegitNoTraining BatchNormWithUpdate"
         " BatchNormNoUpdate", "batch_norm"),
        ("ScaledDotProductFlashAttentionForCpu ScaledDotProductFlashAttention ScaledDotProductEfficientAttention"
         " ScaledDotProductCudnnAttention ScaledDotProductFusedAttentionOverrideable", "scaled_dot_product_attention"),
        ("Convolution CudnnConvolution MiopenConvolution MkldnnConvolution ConvolutionOverrideable", "convolution"),
        ("CudnnRnn MiopenRnn MkldnnRnnLayer", "rnn"),
        ("Mul NativeDropout FusedDropout", "mul"),
        ("GridSampler2D CudnnGridSampler", "grid_sampler_2d"),
        ("CtcLoss CudnnCtcLoss MiopenCtcLoss", "ctc_loss"),
    ],
)
def test_operators_have_one_name(nodes, name):
    assert {graph.short(Node(node + "Backward0")) for node in nodes.split()} == {name}


#: Modules whose sites differ between devices, and why.
DIFFERENT = {
    **dict.fromkeys(("RNN", "LSTM", "LSTM, both ways", "GRU"), "a stand-in for cuDNN is tested above"),
    **dict.fromkeys(("LSTMCell", "GRUCell"), "a GPU has one operator, which rounds once; the CPU has ten"),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "causal attention", "TransformerEncoderLayer", "TransformerDecoderLayer"),
        "the kernel depends on the GPU, and there is none",
    ),
    "RMSNorm": "one operator on a GPU where weights are halves, which autocast does not make of them",
}


def names_on(device, name):
    """Names of all sites that a module of halves can have, from the graph of its forward pass, without any data."""
    make, shapes, integer, _, _ = LAYERS[name]
    shapes = [[8 if d == "4n" else d for d in shape] for shape in shapes]
    before = torch.get_default_dtype()
    with torch._subclasses.FakeTensorMode(), torch.device(device):
        try:
            # Under autocast weights of batch norms are f32, those of products are halves.
            torch.set_default_dtype(torch.float32 if name.startswith("BatchNorm") else torch.float16)
            module = make(2)
            torch.set_default_dtype(torch.float16)
            inputs = [torch.randint(integer, shape) if integer else torch.randn(shape).requires_grad_() for shape in shapes]
            out = module(*inputs)
        finally:
            torch.set_default_dtype(before)
    labels = {id(p): label for label, p in module.named_parameters()}
    names = graph.Names(lambda p: labels.get(id(p), "input"), lambda p: None)
    names.look(out.grad_fn)
    return {found for node, (found, _) in names._known.items() if node.name() not in graph.HANDS_ON}, {
        node.name() for node in names._known
    }


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in DIFFERENT])
def test_modules_have_the_same_sites_on_a_gpu(name):
    """PyTorch chooses operators by the device that tensors report."""
    (cpu, _), (cuda, nodes) = names_on("cpu", name), names_on("cuda", name)
    assert cpu == cuda
    if name == "BatchNorm2d" and torch.version.cuda:
        assert "CudnnBatchNormBackward0" in nodes


def old_names(gs):
    """A state as it was saved when sites were called after the CPU's operators."""
    state = gs.state_dict()
    sites = json.loads(state["sites"]["sites"])
    for site in sites:
        site["name"] = site["name"].replace("/batch_norm", "/native_batch_norm").replace("lstm/rnn", "lstm.weight_ih_l1/mkldnn_rnn_layer")
    state["sites"] = {**state["sites"], "sites": json.dumps(sites)}
    state["blamed"] = {"norm/native_batch_norm": {"overflow": 2, "infinite": 0, "nan": 0}}
    return state


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.norm, self.lstm = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4, num_layers=2)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(F.relu(self.norm(self.pre(x))).unflatten(0, (2, -1)))[0])


def test_states_under_old_names_go_on_with_the_same_bits():
    def continued(change):
        torch.manual_seed(0)
        model, x = Both(), torch.randn(8, 4)
        gs = attach(model, "gs:interval=3")
        for _ in range(2):
            (model(x).square().sum() * 2.0**-30).backward()
            gs.update()
        state = change(gs)
        gs.detach()
        model.zero_grad()
        gs = attach(model)
        gs.load_state_dict(state)
        for _ in range(4):
            (model(x).square().sum() * 2.0**-34).backward()
            gs.update()
        return [p.grad for p in model.parameters()], gs

    new, old = continued(lambda gs: gs.state_dict()), continued(old_names)
    assert "norm/batch_norm>relu" in new[1].sites.names and "lstm/rnn>to_copy" in new[1].sites.names
    assert old[1].sites.names == new[1].sites.names and old[1].sites.exponents.tolist() == new[1].sites.exponents.tolist()
    assert all(torch.equal(a, b) for a, b in zip(old[0], new[0]))
    assert old[1].report().non_finite == {"norm/batch_norm": {"overflow": 2, "infinite": 0, "nan": 0}}


# Refusals of a device

def test_two_devices_are_refused():
    gs = GradientScaling()
    gs._open_once(torch.device("cpu"))
    with pytest.raises(RuntimeError, match="on cpu and on meta: move the model to one device, or train one process for each GPU"):
        gs._store("x", 1, torch.empty(2, device="meta"), 0)
    with pytest.raises(RuntimeError, match="on cpu and on meta"):
        gs._open_once(torch.device("meta"))


def test_capture_is_refused(monkeypatch):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    gs = attach(model, deferred=True)
    model(x).sum().backward()
    gs.update()
    monkeypatch.setattr(stores, "is_capturing", lambda device: True)
    fresh = GradientScaling()
    with pytest.raises(RuntimeError, match="CUDA graph is being captured"):
        fresh._open_once(torch.device("cpu"))
    assert fresh._stores is None
    with pytest.raises(RuntimeError, match="CUDA graph is being captured, but its replays cannot decide exponents"):
        model(x).sum().backward()
    with pytest.raises(RuntimeError, match="capture the forward pass alone"):
        gs._stores.store(torch.ones(2), 0, 0)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "view", [lambda x: x[:, ::2].transpose(0, 1), lambda x: x[:1].expand(4, 6), lambda x: x.t(), lambda x: x[:0], lambda x: x]
)
def test_strides_are_those_that_compiled_graphs_are_told(view, late):
    """For gradients that are expanded, sliced and transposed, on host and device."""
    from gradscale.torch import compiled  # noqa: F401

    x = view(torch.randn(4, 6))
    gs = GradientScaling(deferred=late)
    gs._open_once(torch.device("cpu"))
    y = gs._store("x", 1, x, 0 if not late else torch.tensor(0, dtype=torch.int32))[0]
    with torch._subclasses.FakeTensorMode() as mode:
        told = torch.ops.gradscale.site(mode.from_tensor(x), None, "0", "x", 1)[0]
    assert y.stride() == told.stride() and y.shape == x.shape


def test_kernels_are_those_of_torch():
    """Names of operators are text here, and later versions have more of them."""
    for name in ("_scaled_dot_product_flash_attention_backward", "_flash_attention_backward", "_cudnn_rnn_backward"):
        assert name in fused.HALF_ONLY and hasattr(torch.ops.aten, name), name
    assert not any(name in fused.HALF_ONLY for name in ("mm", "_scaled_dot_product_efficient_attention_backward"))
