"""Functions of other people's: their backward gets plain tensors, whatever it does with them."""

import copy
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.autograd.function import once_differentiable  # noqa: E402

from gradscale.torch import attach, half_backward  # noqa: E402
from test_torch_in_place import SHIFTS, drawn  # noqa: E402
from torch_island import Island, trained  # noqa: E402
from torch_models import error  # noqa: E402

torch.set_num_threads(1)


def function(forward, backward, name="Custom"):
    """A Function of these two."""
    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def keep(ctx, x):
    ctx.save_for_backward(x)
    return x * x


def keep_carelessly(ctx, x):
    ctx.x, ctx.dtype, ctx.buffer = x, x.dtype, torch.empty_like(x)
    return x * x


def changed(g, x):
    g[x < 0] = 0
    return 2 * g * x


def filled(out, g, x):
    out[:, :4], out[:, 4:] = 2 * (g * x)[:, :4], 2 * (g * x)[:, 4:]
    return out


def into(out, g, x):
    torch.mul(g, 2 * x, out=out)
    return out


def by_numpy(g, x):
    return torch.from_numpy(g.numpy() * 2 * x.numpy().astype(g.numpy().dtype))


def by_dlpack(g, x):
    return 2 * torch.from_dlpack(g.detach()) * x


def by_address(g, x):
    """Reads as a kernel in Triton or Numba does: by address, type and number of elements."""
    import ctypes

    kinds = {torch.float64: numpy.float64, torch.float32: numpy.float32, torch.float16: numpy.float16}

    def read(t):
        t = t.contiguous()
        raw = (ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr())
        return numpy.frombuffer(raw, kinds[t.dtype]).reshape(t.shape).copy()

    out = torch.empty_like(x)
    values = (2 * read(g) * read(x)).astype(kinds[out.dtype])
    ctypes.memmove(out.data_ptr(), values.ctypes.data, values.nbytes)
    return out


def in_half(ctx, g):
    """Casts where halves are the type of the layer; f64 in the reference."""
    dtype = ctx.dtype
    return (g.to(dtype) * ctx.x.to(dtype) * 2).to(dtype)


def recomputed(ctx, g):
    (x,) = ctx.saved_tensors
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = x * x
    torch.autograd.backward(y, g)
    return x.grad


def recomputed_carelessly(ctx, g):
    x = ctx.x.detach().requires_grad_()
    with torch.enable_grad():
        y = x * x
    return torch.autograd.grad(y, x, g)[0]


def saved(f):
    return lambda ctx, g: f(g, ctx.saved_tensors[0])


def scribbled(ctx, g):
    """Overwrites the memory of a saved tensor."""
    (x,) = ctx.saved_tensors
    return x.mul_(2).mul_(g)


FUNCTIONS = {
    "a product": function(keep, saved(lambda g, x: 2 * g * x)),
    "decorated": function(keep, once_differentiable(saved(lambda g, x: 2 * g * x))),
    "a clone that is changed": function(keep, saved(lambda g, x: changed(g.clone(), x))),
    "zeros_like(x)": function(keep, saved(lambda g, x: filled(torch.zeros_like(x), g, x))),
    "empty_like(g)": function(keep, saved(lambda g, x: filled(torch.empty_like(g), g, x))),
    "x.new_zeros": function(keep, saved(lambda g, x: filled(x.new_zeros(x.shape), g, x))),
    "zeros of a type": function(keep_carelessly, lambda ctx, g: filled(torch.zeros(g.shape, dtype=ctx.dtype), g, ctx.x)),
    "out=": function(keep, saved(lambda g, x: into(torch.empty_like(x), g, x))),
    "out= of ctx": function(keep_carelessly, lambda ctx, g: into(torch.empty_like(ctx.x), g, ctx.x)),
    "a buffer of the forward pass": function(keep_carelessly, lambda ctx, g: filled(ctx.buffer, g, ctx.x)),
    "casts to half": function(keep_carelessly, in_half),
    "in what was saved": function(keep, scribbled),
    "a backward pass inside": function(keep, recomputed),
    "a backward pass inside, of halves": function(keep_carelessly, recomputed_carelessly),
    "numpy": function(keep, saved(by_numpy)),
    "DLPack": function(keep, saved(by_dlpack)),
    "addresses": function(keep, saved(by_address)),
    "in place": function(keep, saved(lambda g, x: g.mul_(x).mul_(2))),
    "foreach": function(keep, saved(lambda g, x: [v for v in [[2 * x]] if torch._foreach_mul_(v, [g]) is not 0][0][0])),
    "a clamp": function(keep, saved(lambda g, x: g.clamp(-(2.0**-44), 2.0**-44))),
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, shift):
    found, gs, _ = trained(FUNCTIONS[name].apply, drawn(16, 6), shift)
    assert found < (4e-2 if name == "a clamp" else 4e-3) and len(gs.sites) == 3


def test_what_a_backward_gets():
    seen = []

    def look(ctx, g):
        x, y = ctx.saved_tensors[0], ctx.saved_tensors[0]
        seen.append((type(g), g.dtype, g.data_ptr() != 0, g.untyped_storage().nbytes(), x.dtype, x is y, g.clone()))
        return 2 * g * x

    def forward(ctx, x):
        out = keep(ctx, x)
        return out

    found, gs, _ = trained(function(forward, look).apply, drawn(16, 6), -36)
    for kind, dtype, address, size, saved_dtype, same, g in seen[:2]:
        assert (kind, dtype, address, size, saved_dtype, same) == (torch.Tensor, torch.float32, True, 4 * 16 * 8, torch.float32, True)
    # The gradient itself, in the first steps and in the reference.
    assert error([seen[1][-1]], [seen[-1][-1]]) < 3e-3


def test_a_backward_writes_into_halves_that_are_read_later():
    notes = {dtype: torch.zeros(8, dtype=dtype) for dtype in (torch.float16, torch.float64)}
    saved_notes = {dtype: torch.zeros(8, dtype=dtype) for dtype in notes}

    def forward(ctx, x):
        ctx.notes = notes[x.dtype]
        ctx.save_for_backward(x, saved_notes[x.dtype])
        return x * x

    def write(ctx, g):
        x, notes_of_x = ctx.saved_tensors
        ctx.notes.copy_(g.abs().sum(0))
        notes_of_x.copy_(g.abs().amax(0))
        return 2 * g * x

    trained(function(forward, write).apply, drawn(16, 6), 0)
    for one in (notes, saved_notes):
        assert one[torch.float64].min() > 0 and error([one[torch.float16]], [one[torch.float64]]) < 3e-3


@pytest.mark.parametrize("enabled", [False, True])
def test_a_backward_leaves_the_cache_of_autocast_as_it_was(enabled):
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(enabled)
    try:
        trained(FUNCTIONS["a product"].apply, drawn(16, 6), 0)
        assert torch.is_autocast_cache_enabled() == enabled
    finally:
        torch.set_autocast_cache_enabled(before)


class LinearFunction(torch.autograd.Function):
    """The example of PyTorch's documentation."""

    @staticmethod
    def forward(input, weight, bias):
        return input.mm(weight.t()) + bias.unsqueeze(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class Amp(torch.autograd.Function):
    """The example of PyTorch's documentation for autocast."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g.mm(b.t()), a.t().mm(g)


class AmpInHalf(Amp):
    """The same, with its inputs cast to half."""

    forward = staticmethod(torch.amp.custom_fwd(lambda ctx, a, b: (ctx.save_for_backward(a, b), a.mm(b))[1], device_type="cpu", cast_inputs=torch.float16))


class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.weight, self.bias = kind, nn.Parameter(torch.eye(8) + 0.1), nn.Parameter(torch.ones(8))

    def forward(self, x):
        if self.kind is LinearFunction:
            return LinearFunction.apply(x.to(self.weight.dtype), self.weight, self.bias)
        # The reference is in f64, without autocast.
        return x @ self.weight.t() if x.dtype == torch.float64 else self.kind.apply(x, self.weight.t())


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", [LinearFunction, Amp, AmpInHalf])
def test_the_examples_of_pytorchs_documentation(kind, shift):
    torch.manual_seed(0)
    layer, x = Layer(kind), drawn(16, 6)
    if kind is AmpInHalf:
        with torch.no_grad():
            layer.weight.copy_(layer.weight.half().float())
    model = nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 3))
    twin = copy.deepcopy(model).double()
    (twin(x.double()).square().mean() * 2.0**shift).backward()
    attach(model)
    (model(x).square().mean() * 2.0**shift).backward()
    for (name, p), q in zip(model.named_parameters(), twin.parameters()):
        if q.grad is not None:
            assert error([p.grad], [q.grad]) < 3e-3, name


def test_a_function_that_fails_leaves_nothing_behind():
    def fail(ctx, g):
        raise ValueError("of the function's own")

    bad = function(keep, fail)
    model = Island(bad.apply)
    attach(model)
    with pytest.raises(ValueError, match="of the function's own"):
        model(drawn(16, 6)).sum().backward()
    assert torch.zeros(3).half().clone().dtype == torch.float16
    model.function = torch.tanh
    model.zero_grad()
    model(drawn(16, 6)).sum().backward()
    assert model.first.weight.grad.isfinite().all()


def test_functions_with_several_gradients_and_none():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x.sum(1), x.argmax(1)

    def backward(ctx, g, s, _):
        return 2 * g + s[:, None]

    Several = function(forward, backward)

    def run(x):
        if x.dtype == torch.float64:
            return x * 2 + x.sum(1, keepdim=True) * 2.0**-9
        a, b, _ = Several.apply(x)
        return a + b[:, None] * 2.0**-9

    assert trained(run, drawn(16, 6), -36)[0] < 3e-3
    # A result that is not used has a gradient of zeros.
    assert trained(lambda x: Several.apply(x)[0] if x.dtype != torch.float64 else 2 * x, drawn(16, 6), -36)[0] < 3e-3


def test_kernels_that_know_halves_alone():
    """A function that is marked so gets gradients as halves at one exponent."""
    seen = []

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        assert g.dtype == x.dtype
        if x.dtype == torch.float16:
            seen.append(float(g.float().abs().max()))
        return torch.from_numpy((2 * g * x).numpy())

    Kernel = half_backward(function(keep, backward))
    found, gs, _ = trained(Kernel.apply, drawn(16, 6), -36)
    assert found < 3e-3 and len(gs.sites) == 3 and min(seen) > 2.0**-10


def test_a_library_operator():
    """An operator of torch.library, whose backward is Python."""

    @torch.library.custom_op("gradscale_test::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() ** 3)

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    cube.register_autograd(lambda ctx, g: torch.from_numpy(3 * g.numpy() * ctx.saved_tensors[0].numpy() ** 2), setup_context=setup)
    found, gs, _ = trained(lambda x: cube(x), drawn(16, 6), -36)
    assert found < 3e-3 and len(gs.sites) == 3


def test_chunks_at_the_head():
    """A loss that computes its gradients in the forward pass, chunk by chunk, as trl's and Liger's do."""

    def forward(ctx, h, weight):
        total, gradient = h.new_zeros((), dtype=torch.float32), torch.empty_like(h)
        dw = torch.zeros_like(weight)
        for rows in range(0, len(h), 4):
            part = h[rows : rows + 4].detach().float() @ weight.float()
            total += part.square().sum()
            gradient[rows : rows + 4] = 2 * part @ weight.float().t()
            dw += 2 * h[rows : rows + 4].float().t() @ part
        ctx.save_for_backward(gradient, dw)
        return total

    def backward(ctx, g):
        gradient, dw = ctx.saved_tensors
        return (g * gradient).to(gradient.dtype), (g * dw).to(dw.dtype)

    Head = function(forward, backward)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.w = nn.Linear(6, 8), nn.Linear(8, 8), nn.Parameter(torch.eye(8)[:, :3] + 0.1)

        def forward(self, x):
            return Head.apply(self.b(torch.tanh(self.a(x))), self.w)

    torch.manual_seed(0)
    model, x = Model(), drawn(16, 6)
    (model(x) * 2.0**-36).backward()
    true = [p.grad.clone() for p in model.parameters()]
    gs = attach(model)
    model.zero_grad()
    (model(x) * 2.0**-36).backward()
    assert error([p.grad for p in model.parameters()], true) < 3e-3 and gs.update().stepped


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """An extension in C++, compiled here, or before from the same source by the same compiler for the same PyTorch: its headers
    take a compiler most of a minute."""
    from torch.utils import cpp_extension

    compiler = shutil.which(cpp_extension.get_cxx_compiler())
    if compiler is None:
        pytest.skip("no C++ compiler")
    paths = [f"-I{path}" for path in cpp_extension.include_paths()]
    for path in cpp_extension.library_paths():
        paths += [f"-L{path}", f"-Wl,-rpath,{path}"]
    source = Path(__file__).parent / "extension" / "twice.cpp"
    command = [compiler, "-O0", "-w", "-std=c++20", "-shared", "-fPIC", str(source), *paths, "-lc10", "-ltorch_cpu"]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256(repr((source.read_bytes(), command, version, torch.__version__)).encode()).hexdigest()
    kept = os.environ.get("GRADSCALE_CACHE")
    library = Path(kept or tmp_path_factory.mktemp("extension")) / f"twice-{key[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        # Renamed at the end, so that no half of a file is found.
        unfinished = library.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        unfinished.rename(library)
    torch.ops.load_library(str(library))
    return torch.ops.gradscale_test


@pytest.mark.parametrize("shift", SHIFTS)
def test_extensions_in_cpp(extension, shift):
    """Access by addresses: a backward pass in C++, one in Python, and one of f32 inside a half model."""
    x = drawn(16, 6)
    Python = function(keep, saved(lambda g, x: extension.twice(g, x)))
    for run in (extension.square, Python.apply, lambda x: extension.square(x.float()) if x.dtype == torch.float16 else extension.square(x)):
        found, gs, _ = trained(run, x, shift)
        assert found < 3e-3 and len(gs.sites) == 3


def test_functions_compiled():
    """Compiled graphs contain these functions."""
    torch._dynamo.reset()
    model = Island(FUNCTIONS["zeros_like(x)"].apply)
    x = drawn(16, 6)
    (model(x).square().mean() * 2.0**-36).backward()
    true = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    attach(model)
    (torch.compile(model, backend="aot_eager", fullgraph=True)(x).square().mean() * 2.0**-36).backward()
    assert error([p.grad for p in model.parameters()], true) < 3e-3
