"""Ways of a GPU, taken on the CPU: with the bits of the general way, and as few launches as they promise."""

import collections

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from gradscale.torch import attach, gpu  # noqa: E402
from gradscale.torch.store_formats import FP16  # noqa: E402
from gradscale.torch.stores import Device  # noqa: E402
from torch_models import KernelStandIns, Launches, on_kernels, trained_late  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
def test_the_ways_of_a_gpu_have_the_same_bits(name):
    kernels = KernelStandIns()
    weights, *rest = trained_late(name)
    with on_kernels(kernels):
        found, *others = trained_late(name)
    assert all(map(torch.equal, weights, found)) and rest == others
    assert {"store_values", "scale_values"} <= set(kernels.counts)
    assert ("add_values" in kernels.counts) == (name == "transformer")


class Block(nn.Module):
    """A residual sum between two layers, whose gradients have unlike exponents."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.inner(x.relu()))


def test_launches_of_a_backward_pass():
    """A store and an unscaled gradient are one launch each, and products have no launch beside their own."""
    torch.manual_seed(0)
    model, x, r, kernels = Block(), torch.randn(16, 8), torch.randn(16, 4), KernelStandIns()
    gs = attach(model, deferred=True)
    with on_kernels(kernels):
        for _ in range(3):
            model.zero_grad()
            loss = (model(x) * r).sum()
            kernels.counts.clear()
            with Launches() as launches:
                loss.backward()
            gs.update()
    # Stores are at last, inner, relu and first: of the sum, once.
    stores = len(gs.sites)
    assert kernels.counts == {"store_values": stores, "scale_values": len(list(model.parameters())), "add_values": 1}
    # Three weights and the inputs of two layers; two biases; relu. The rest begins the pass: the loss is multiplied by r.
    expected = {"mm": 5, "sum": 2, "threshold_backward": 1, "ones_like": 1, "mul": 1}
    assert launches.counts == expected


@pytest.mark.parametrize("bias", [False, True])
def test_layers_multiply_halves_if_activations_have_exponents(bias):
    torch.manual_seed(0)
    model, x = nn.Linear(8, 4, bias=bias), torch.randn(16, 8) * 2.0**-20
    gs = attach(model, "gs:forward=on", deferred=True)
    with torch.no_grad():
        expected = model(x)
        with on_kernels(KernelStandIns()), Launches() as launches:
            out = model(x)
    assert launches.counts["mm"] == 1 and launches.counts["addmm"] == 0
    assert torch.equal(out, expected)
    gs.detach()


def test_convolutions_use_tf32_and_restore_it():
    """Only with operands that are halves, whatever the user has set."""
    get = getattr(torch._C, "_get_fp32_precision_getter", None)
    precision = (lambda: get("cuda", "conv")) if get else torch._C._get_cudnn_allow_tf32
    seen = collections.Counter()

    def convolve(*args):
        seen[precision()] += 1

    half, wide = torch.zeros(2).half(), torch.zeros(2)
    for allowed in (False, True):
        # Not the flag itself, which tests of PyTorch's own freeze when they are imported.
        with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=allowed):
            outside = precision()
            gpu.in_tf32(convolve, [half, half, half])(1)
            assert precision() == outside
            assert gpu.in_tf32(convolve, [half, half, wide]) is convolve
            with pytest.raises(ZeroDivisionError):
                gpu.in_tf32(lambda: 1 / 0, [half, half, half])()
            assert precision() == outside
    assert list(seen.values()) == [2], seen


def test_products_of_a_gpu_are_those_of_halves():
    """In PyTorch's own description of a GPU's operators, without one: from halves only, and for all devices that have them."""
    aten = torch.ops.aten
    with torch._subclasses.FakeTensorMode(), torch.device("cuda"):
        for function, shape in ((aten.mm.default, (4, 4)), (aten.bmm.default, (2, 4, 4))):
            half, wide = torch.zeros(shape, dtype=torch.float16), torch.zeros(shape)
            assert gpu.multiply(function, (half, wide)) is gpu.multiply(function, (wide, half)) is None
            if "dtype" in function.overloadpacket.overloads():
                assert gpu.multiply(function, (half, half)).dtype == torch.float32
        assert gpu.multiply(aten.add.Tensor, (half, half)) is None


def test_exponents_that_gradients_have_stay():
    """A site that stored zeros decides later in the step, after a gradient has its exponent."""
    device = Device(torch.device("cpu"))
    device.upload(np.array([3, 4], np.int32), np.array([2, 2], np.int32), [FP16, FP16])
    before, other = device.exponent(0), device.exponent(1)
    assert device.exponent(0) is before
    device.decided(0, 7)
    assert (int(before), int(device.exponent(0)), int(other), int(device.exponent(1))) == (3, 7, 4, 4)
    device.take(2)
    device.decided(0, 9)
    assert int(device.exponent(0)) == 9
