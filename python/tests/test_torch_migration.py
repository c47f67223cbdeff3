"""The lines of the migration tables in docs/guide/pytorch-package.md, on the CPU."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gradscale.torch import GradientScaling, GradScaler, attach  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=generator), torch.randint(4, (32,), generator=generator)


def attached(method="gs"):
    model = network()
    scaling = attach(model, method)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaling.guard(optimizer)
    return model, scaling, optimizer


def train(model, scaling, optimizer, steps=3):
    x, y = batch()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scaling.update()
    return loss


@pytest.mark.parametrize("method, exponent", [("gs", 0), ("fixed:128", 7), ("apex", 16), ("dynamic:min=1,max=2^24", 16)])
def test_loss_scales_of_others_are_methods(method, exponent):
    model, scaling, optimizer = attached(method)
    train(model, scaling, optimizer)
    assert scaling.steps == 3 and scaling.outcome.stepped and scaling.sites.loss_exponent == exponent
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
    # As `keep_batchnorm_fp32`.
    assert model[1].running_var.dtype == torch.float32


def test_a_plain_autocast_can_stay():
    model, scaling = network(), GradientScaling()
    x, y = batch()
    with torch.autocast("cpu", torch.float16):
        loss = cross_entropy(model(x), y)
    scaling.backward(loss)
    assert scaling.update().stepped and model[0].weight.grad.dtype == torch.float32


def test_the_loop_of_the_scaler_with_one_line_changed():
    losses = []
    for scaler in (GradScaler("cpu", init_scale=2.0**10, growth_factor=2.0, backoff_factor=0.5, growth_interval=10), None):
        model, (x, y) = network(), batch()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if scaler is None:
            losses.append(train(*attached()).item())
            continue
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                out = model(x)
            loss = cross_entropy(out.float(), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
        assert scaler.get_scale() == 1.0
    # Both ways of using the scales are one training.
    assert losses[0] == losses[1]


def test_accumulation_and_two_optimizers():
    model, (x, y) = network(), batch()
    scaling = attach(model)
    optimizers = [torch.optim.SGD(model[i].parameters(), 0.1) for i in (0, 3)]
    before = [p.clone() for p in model.parameters()]
    for optimizer in optimizers:
        scaling.guard(optimizer)
    for _ in range(4):
        (cross_entropy(model(x), y) / 4).backward()
    for optimizer in optimizers:
        optimizer.step()
    assert scaling.update().stepped and scaling.steps == 1
    assert [torch.equal(p, q) for p, q in zip(before, model.parameters())] == [False, False, True, True, False, False]


class WithFloat32Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow, self.wide = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        x = self.narrow(x)
        with torch.autocast("cpu", enabled=False):
            return self.wide(x.float())


def test_a_layer_outside_of_autocast_has_no_site():
    model, (x, y) = WithFloat32Layer(), batch()
    scaling = attach(model)
    cross_entropy(model(x), y).backward()
    assert scaling.update().stepped and scaling.sites.names == ["narrow"]


def test_what_is_rejected():
    x, _ = batch()
    for cast, kind in (("half", TypeError), ("bfloat16", RuntimeError), ("double", RuntimeError)):
        model = getattr(network(), cast)()
        # PyTorch itself may reject weights of another type than those that autocast expects.
        with pytest.raises(kind):
            attach(model)
            model(x).sum().backward()
    with pytest.raises(ValueError, match="bfloat16 has no scaled gradients"):
        attach(network(), dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="LBFGS"):
        GradientScaling().guard(torch.optim.LBFGS(network().parameters()))


def test_a_batch_that_is_not_finite_is_left_out():
    model, scaling, optimizer = attached()
    (x, y), before = batch(), model[0].weight.clone()
    model.eval()
    cross_entropy(model(x * float("nan")), y).backward()
    optimizer.step()
    outcome = scaling.update()
    assert not outcome.stepped and outcome.non_finite == "nan" and torch.equal(before, model[0].weight)


def test_accelerate_without_its_precision():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="no")
    model, (x, y) = network(), batch()
    scaling = attach(model)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    scaling.guard(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scaling.update()
    # Bit for bit what a loop without accelerate does.
    assert scaling.steps == 3 and loss.item() == train(*attached()).item()
