"""Stores as operators of PyTorch: eager and compiled, on every implementation that this machine can run."""

import os

import gradscale as gs
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gradscale.torch import ops, store_formats  # noqa: E402
from torch_models import KernelStandIns, example, row  # noqa: E402

torch.set_num_threads(1)


def board(exponents, details=None):
    details = [2] * len(exponents) if details is None else details
    return torch.tensor([exponents, details], dtype=torch.int32), ops.new_rows(len(exponents))


@pytest.mark.parametrize("exponent", [-150, -20, 0, 3, 40, 300])
@pytest.mark.parametrize("half", [False, True])
def test_stores_like_the_package(exponent, half):
    x = example().half() if half else example()
    control, rows = board([5, exponent])
    y = ops.store(x, rows, control, 0, 1)
    expected, seen = gs.store(x.numpy(), exponent, from_exponent=5)
    assert y.dtype == torch.float16 and np.array_equal(y.numpy().view(np.uint16), expected.view(np.uint16))
    assert row(rows, 1) == seen and not rows[0].any()


@pytest.mark.parametrize("exponent", [-150, -20, 0, 3, 40, 300])
@pytest.mark.parametrize("detail", [0, 1, 2])
def test_any_device_has_the_same_bits(exponent, detail):
    """The implementation for devices without a kernel of ours, on the CPU: torch's own operators."""
    x = example()
    control, rows = board([5, exponent], [detail] * 2)
    other = rows.clone()
    y = ops.store(x, rows, control, 0, 1)
    assert np.array_equal(ops.store_anywhere(x, other, control, 0, 1).view(torch.int16), y.view(torch.int16))
    assert torch.equal(other, rows)
    # A second call of the site merges.
    ops.observe(2 * x, rows, control, 0, 1)
    ops.observe_anywhere(2 * x, other, control, 0, 1)
    assert torch.equal(other, rows)


@pytest.mark.parametrize("name", ["e5m2", "e4m3"])
@pytest.mark.parametrize("exponent", [-60, 0, 9])
@pytest.mark.parametrize("half", [False, True])
def test_stores_in_eight_bits_have_the_same_bits_everywhere(name, exponent, half):
    x = example().half() if half else example()
    control, rows = board([5, exponent])
    other = rows.clone()
    y = ops.store(x, rows, control, 0, 1, name)
    expected, seen = gs.store(x.numpy(), exponent, from_exponent=5, format=name)
    assert y.dtype == torch.float16 and np.array_equal(y.numpy().view(np.uint16), expected.view(np.uint16))
    assert row(rows, 1) == seen and seen.format == name
    z = ops.store_anywhere(x, other, control, 0, 1, store_formats.find(name).code)
    assert torch.equal(z.view(torch.int16), y.view(torch.int16)) and torch.equal(other, rows)
    # A second call of the site merges, and one without details leaves the row as it is.
    for detail in (2, 0):
        control[1] = detail
        ops.observe(2 * x, rows, control, 0, 1, name)
        ops.observe_anywhere(2 * x, other, control, 0, 1, store_formats.find(name).code)
        assert torch.equal(other, rows)
    with pytest.raises(ValueError, match="'fp8' is not a format of stores: choose fp16, e5m2, e4m3"):
        ops.store(x, rows, control, 0, 1, "fp8")
    with pytest.raises(ValueError, match="convention"):
        ops.store(x, rows, torch.ones_like(control), 0, 1)


def test_unscales():
    x = example().half()
    for exponent in (-300, -130, -24, 0, 24, 130, 300):
        control, _ = board([exponent])
        with np.errstate(over="ignore"):
            expected = np.ldexp(x.float().numpy().astype(np.float64), -exponent).astype(np.float32)
        assert np.array_equal(ops.unscale(x, control, 0).numpy(), expected, equal_nan=True)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.transpose(1, 3),
        lambda x: x[:, :, ::2],
        lambda x: x[:, :1].expand(4, 3, 8, 8),
        lambda x: x[0, 0, 0, 7],
        lambda x: x[:0],
        lambda x: x.requires_grad_(),
    ],
)
def test_any_layout(view):
    x = view(example())
    control, rows = board([3])
    y = ops.store(x, rows, control, -1, 0)
    assert y.shape == x.shape and y.stride() == torch.empty_like(x, dtype=torch.float16).stride()
    expected, seen = gs.store(x.detach().contiguous().numpy(), 3)
    assert np.array_equal(y.numpy().view(np.uint16), expected.view(np.uint16))
    assert row(rows, 0) == seen
    other = ops.new_rows(1)
    ops.observe(x, other, control, -1, 0)
    assert torch.equal(other, rows)


def test_gradients_of_other_types_are_refused():
    control, rows = board([0])
    for dtype in (torch.float64, torch.int32, torch.bfloat16):
        with pytest.raises(TypeError, match="float32 and float16"):
            ops.store(torch.ones(2).to(dtype), rows, control, -1, 0)
    with pytest.raises(IndexError):
        ops.store(torch.ones(2), rows, control, -1, 1)
    with pytest.raises(IndexError):
        ops.store(torch.ones(2), rows, control, 7, 0)


def test_operators_are_as_they_say():
    control, rows = board([3, 4])
    tests = ("test_schema", "test_faketensor")
    for x in (example((6, 5)), example((6, 5)).half()):
        torch.library.opcheck(torch.ops.gradscale.store.default, (x, rows.clone(), control, 0, 1), test_utils=tests)
        torch.library.opcheck(torch.ops.gradscale.store.default, (x, rows.clone(), control, 0, 1, 2), test_utils=tests)
        torch.library.opcheck(torch.ops.gradscale.observe.default, (x, rows.clone(), control, -1, 1), test_utils=tests)
        torch.library.opcheck(torch.ops.gradscale.unscale.default, (x, control, 1), test_utils=tests)


def chain(x, rows, control):
    y = ops.store(x * 2, rows, control, -1, 0)
    z = ops.store(y * 3, rows, control, 0, 1)
    return ops.unscale(z, control, 1) + 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_once_with_the_same_bits(backend):
    if backend == "inductor" and not (has_compiler() and os.environ.get("GRADSCALE_ALL")):
        pytest.skip("Inductor takes a C++ compiler and a while: python/test.sh --all")
    torch._dynamo.reset()
    compiled = torch.compile(chain, fullgraph=True, backend=backend)
    # Powers of two, and no factors that a compiler may fuse: products are exact, whatever their order is.
    x = example((64,))
    for step, exponents in enumerate([[0, 0], [5, -9], [-30, 31], [200, 3]]):
        control, rows = board(exponents, [1 + step % 2] * 2)
        other = rows.clone()
        with torch._dynamo.config.patch(error_on_recompile=step > 0):
            got = compiled(x, other, control)
        expected = chain(x, rows, control)
        assert np.array_equal(got.numpy(), expected.numpy(), equal_nan=True) and torch.equal(rows, other)
    assert not torch.equal(rows[0], rows[1])


def has_compiler():
    import shutil

    return any(map(shutil.which, ("c++", "g++", "clang++")))


def test_decisions_from_rows_on_the_device():
    """A step with rows and control as a training has them: decided from rows that come late."""
    sites = gs.Sites("gs:interval=1", ["a", "b"], deferred=True)
    control, rows = ops.control_of(sites), ops.new_rows(2)
    x = torch.full((100,), 1e-6) * torch.linspace(-1, 1, 100)
    flushed = []
    for _ in range(3):
        rows.zero_()
        ops.store(x, rows, control, -1, 0)
        ops.store(x * 1e-5, rows, control, -1, 1)
        assert sites.finish(rows.numpy().view(np.uint32)).stepped
        flushed.append(row(rows, 1).flushed)
        control.copy_(ops.control_of(sites))
    assert flushed == [100, 0, 0]


TRITON = """
import torch
from gradscale.torch import kernels, ops, store_formats
from torch_models import example, on_kernels, trained_late

def same(x, y):
    nan = x.isnan()
    return torch.equal(nan, y.isnan()) and torch.equal(x[~nan].view(torch.int16), y[~nan].view(torch.int16))

for exponent, detail, kind in ((-300, 2, 0), (-150, 1, 0), (0, 2, 0), (40, 0, 0), (300, 2, 0), (3, 2, 1), (5, 2, 2), (-9, 0, 2)):
    format = store_formats.FORMATS[kind]
    parts = [example((3000,))] + [example((3000,))[:n] for n in (0, 1, 2047, 2048, 2049) if exponent == 0]
    for x in parts + [part.half() for part in parts]:
        control = torch.tensor([[5, exponent, 0], [2, detail, 2]], dtype=torch.int32)
        rows, other = ops.new_rows(3), ops.new_rows(3)
        y, kept = ops.store(x, rows, control, 0, 1, format.name), torch.zeros((), dtype=torch.int32)
        z = torch.empty_like(y)
        kernels.store_values(x, z, other, control, control[0, 0], 1, kept, format)
        assert same(y, z) and kept == exponent
        # A second call of a site merges; what is not scaled comes from no site.
        ops.observe(x, rows, control, 0, 1, format.name)
        kernels.store_values(x, None, other, control, 5, 1, format=format)
        ops.observe(x, rows, control, -1, 2, format.name)
        kernels.store_values(x, None, other, control, 0, 2, format=format)
        assert torch.equal(rows, other), (exponent, detail, x.dtype, format)
        if kind:
            continue
        one, two = torch.tensor(exponent, dtype=torch.int32), torch.tensor(7, dtype=torch.int32)
        for start, end in ((one, two), (exponent, two), (one, 7), (exponent, 7)):
            y = torch.empty_like(x, dtype=torch.float32)
            kernels.scale_values(x, y, start, end)
            assert same(y, ops.scaled(x, two, one))
        for a, b in ((one, two), (two, one), (exponent, two)):
            y, least, other = torch.empty_like(x, dtype=torch.float32), torch.zeros((), dtype=torch.int32), x.flip(0).contiguous()
            kernels.add_values(x, other, y, a, b, least)
            a, b = (torch.as_tensor(e, dtype=torch.int32) for e in (a, b))
            assert least == min(7, exponent) and same(y, ops.scaled(x, least, a) + ops.scaled(other, least, b))

expected = trained_late("transformer", 2)
with on_kernels(kernels):
    weights, *rest = trained_late("transformer", 2)
assert rest == list(expected[1:]) and all(map(torch.equal, weights, expected[0]))
print("the same")
"""


def test_triton_has_the_same_bits():
    """The GPU's kernel in Triton's interpreter, in a process of its own: it is chosen when Triton is imported."""
    import subprocess
    import sys

    pytest.importorskip("triton", reason="triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    result = subprocess.run([sys.executable, "-c", TRITON], env=environment, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "the same", result.stderr[-2000:]


def test_old_gpus_run_torchs_own_operators(monkeypatch):
    """On devices for which Triton cannot compile; here with tensors of the CPU."""
    x, (control, rows) = example(), board([5, 3])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    ops.has_kernel.cache_clear()
    y, other = ops._store_cuda(x, rows, control, 0, 1), rows.clone()
    expected = ops.store(x, rows.zero_(), control, 0, 1)
    assert np.array_equal(y.view(torch.int16), expected.view(torch.int16)) and torch.equal(rows, other)
    ops._observe_cuda(x, rows, control, 0, 1)
    ops.observe(x, other, control, 0, 1)
    assert torch.equal(rows, other)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    ops.has_kernel.cache_clear()
    launched = KernelStandIns()
    monkeypatch.setattr(ops, "kernels", lambda: launched)
    ops._store_cuda(x, rows, control, 0, 1)
    ops._observe_cuda(x, rows, control, 0, 1)
    ops._unscale_cuda(x, control, 1)
    assert launched.counts == {"store_values": 2, "scale_values": 1}
    ops.has_kernel.cache_clear()


def kernel_variants(kernels):
    """Kernels with the types of their arguments and their constants, as they are launched: with exponents on the device."""
    exponents = dict.fromkeys(["start_at", "end_at", "a_at", "b_at", "kept", "least", "rows", "control"], "*i32")
    numbers = dict.fromkeys(["elements", "sites", "start", "end", "site", "a", "b"], "i32")
    constants = {"ROW": gs.ROW_WORDS, "BLOCK": kernels.BLOCK} | dict.fromkeys(
        ["FROM_TENSOR", "TO_TENSOR", "STORES", "KEEPS", "A_TENSOR", "B_TENSOR"], True
    )
    values = {"x": "*fp32", "y": "*fp32", "out": "*fp32"}
    words = "FORMAT", "FLUSH", "SUBNORMAL", "OVERFLOW", "NORMAL", "GRID", "TOO_LARGE"
    stores = [
        (kernels._store, {"y": "*fp16"}, kernels.STORE_WARPS, dict(zip(words, kernels.constants(format))))
        for format in (store_formats.FP16, store_formats.find("e4m3"))
    ]
    for kernel, more, warps, format in (*stores, (kernels._scale, {"x": "*fp16"}, 4, {}), (kernels._add, {}, 4, {})):
        known = constants | format
        types = {**values, **more, **exponents, **numbers, **dict.fromkeys(known, "constexpr")}
        names = kernel.arg_names
        yield kernel, {name: types[name] for name in names}, {name: known[name] for name in names if name in known}, warps


@pytest.mark.parametrize("architecture", [70, 75, 80, 90])
def test_triton_compiles(architecture, monkeypatch):
    """Compiles to machine code for GPUs that this machine lacks, one kernel for all sites."""
    triton = pytest.importorskip("triton", reason="triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gradscale.torch import kernels

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    for kernel, signature, constants, warps in kernel_variants(kernels):
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        assert triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": warps}).asm["cubin"]
