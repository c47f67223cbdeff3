"""Mistakes that would be silent: nothing is scaled, a batch is not checked, an update is forgotten. Each has its own
message."""

import dataclasses
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from gradscale.torch import GradScaler, GradientScaling, attach  # noqa: E402
from torch_models import batches, cross_entropy, error, network  # noqa: E402

torch.set_num_threads(1)


@dataclasses.dataclass
class Out:
    logits: torch.Tensor
    more: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor


class Results(list):
    pass


class Hidden:
    """Object whose parts are hidden."""

    def __init__(self, logits):
        self.hidden = (logits,)


#: Results of models, and how a loss takes their tensors.
OUTPUTS = {
    "a tensor": (lambda h: h, lambda out: out),
    "a dataclass": (Out, lambda out: out.logits),
    "a frozen dataclass": (Frozen, lambda out: out.logits),
    "a dataclass in a dataclass": (lambda h: Out(h.detach(), Out(h)), lambda out: out.more.logits),
    "a list of an own class": (lambda h: Results([h]), lambda out: out[0]),
    "a dictionary of lists": (lambda h: {"a": [h, 3, None]}, lambda out: out["a"][0]),
    "a normal distribution": (lambda h: torch.distributions.Normal(h, 1.0), lambda out: out.mean),
    "a categorical one": (lambda h: torch.distributions.Categorical(logits=h), lambda out: out.logits),
    "a transformed one": (
        lambda h: torch.distributions.TransformedDistribution(
            torch.distributions.Normal(torch.zeros(h.shape[-1]), 1.0), [torch.distributions.AffineTransform(h, 2.0), torch.distributions.TanhTransform().inv]
        ),
        lambda out: out.log_prob(torch.full((5,), 0.2)),
    ),
    "independent ones": (lambda h: torch.distributions.Independent(torch.distributions.Normal(h, 1.0), 1), lambda out: out.mean),
}


class Net(nn.Module):
    def __init__(self, wrap=lambda h: h):
        super().__init__()
        self.wrap, self.a, self.b = wrap, nn.Linear(12, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.wrap(self.encode(x))

    def encode(self, x):
        return self.b(torch.tanh(self.a(x)))


def said(do):
    """The words of gradscale's that `do` warns with."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        do()
    return [str(w.message) for w in caught if str(w.message).startswith("gradscale")]


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_of_any_kind_are_scaled(name):
    wrap, take = OUTPUTS[name]
    torch.manual_seed(0)
    model, x = Net(wrap), next(batches("mlp", 1))[0]
    (take(model(x)).square().mean() * 2.0**-36).backward()
    true = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    gs = attach(model)
    kind = type(model(x))
    out = model(x)
    assert type(out) is kind and (name == "a tensor" or kind is type(wrap(torch.zeros(2, 2))))
    (take(out).square().mean() * 2.0**-36).backward()
    assert not said(gs.update)
    assert error([p.grad for p in model.parameters()], true) < 3e-3 and len(gs.sites) >= 3


def backward(model, out):
    (out.float().square().mean() * 2.0**-10).backward()


def test_update_says_why_nothing_was_scaled():
    x = next(batches("mlp", 1))[0]
    model = Net(Hidden)
    gs = attach(model)
    assert not said(gs.update)  # No pass has run yet.
    for words in (["computed gradients, but none was scaled"], []):
        backward(model, model(x).hidden[0])
        found = said(gs.update)
        assert len(found) == len(words) and all(w in f for w, f in zip(words, found))
    model = Net()
    gs = attach(model)
    backward(model, model.encode(x))
    found = said(gs.update)
    assert len(found) == 1 and "its forward was not called" in found[0] and "backward(loss)" in found[0]
    model = Net()
    gs = attach(model)
    model.forward = model.encode
    backward(model, model(x))
    found = said(gs.update)
    assert len(found) == 1 and "Net.forward was replaced after attach()" in found[0]
    # Wrapping the model and calling the wrapper causes no warning; nor does a loss without gradients.
    model = Net()
    gs = attach(model)
    ours = model.forward
    model.forward = lambda x: ours(x)
    backward(model, model(x))
    assert not said(gs.update) and len(gs.sites) == 3
    model.zero_grad()
    with torch.no_grad():
        model(x)
    assert not said(gs.update)


def test_update_names_what_was_bypassed():
    model, x = Net(), next(batches("mlp", 1))[0]
    model.c = nn.Linear(12, 5)
    gs = attach(model)
    backward(model, model(x) + model.c(x))
    found = said(gs.update)
    assert len(found) == 1 and "c.weight and 1 more were not scaled" in found[0]


def test_a_hook_that_returns_a_plain_half():
    model, x = Net(), next(batches("mlp", 1))[0]
    gs = attach(model)
    model.a.register_forward_hook(lambda m, i, out: out.register_hook(lambda g: torch.zeros(g.shape, dtype=torch.float16)) and None)
    found = said(lambda: backward(model, model(x)))
    assert len(found) == 1 and ("a.weight arrived without an exponent" in found[0] or "a.bias arrived" in found[0])
    gs.update()


def test_two_trainings_that_share_weights_are_no_trouble():
    """The hook that comes first unscales a gradient, and the other one finds it plain."""
    generator, critic, x = Net(), nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)), next(batches("mlp", 1))[0]
    attach(generator)
    theirs = attach(critic)

    def run():
        for _ in range(2):
            (critic(generator(x)).mean() * 2.0**-20).backward()
            theirs.update()

    assert not said(run)
    gradients = [p.grad / 2 for p in generator.parameters()]
    twins = Net().double(), nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    for twin, model in zip(twins, (generator, critic)):
        twin.load_state_dict(model.state_dict())
    (twins[1](twins[0](x.double())).mean() * 2.0**-20).backward()
    assert error(gradients, [p.grad for p in twins[0].parameters()]) < 3e-3


def test_a_part_of_the_loss_that_the_model_keeps():
    """A load-balancing loss of experts, which is not part of the results of forward."""

    class Keeping(Net):
        def forward(self, x):
            h = self.a(x)
            self.balance = h.square().mean()
            return self.b(torch.tanh(h))

    model, x = Keeping(), next(batches("mlp", 1))[0]
    gs = attach(model)

    def run():
        for _ in range(2):
            out = model(x)
            ((out.square().mean() + model.balance.float()) * 2.0**-10).backward()
            gs.update()

    found = said(run)
    assert len(found) == 1 and "return every tensor that the loss uses from forward" in found[0]


def test_a_weight_in_the_loss_is_no_trouble():
    """Decay written out: its gradient is plain, and added to one that is scaled."""
    model, x = Net(), next(batches("mlp", 1))[0]
    gs = attach(model)

    def run():
        for _ in range(3):
            (model(x).square().mean() + model.a.weight.square().sum()).backward()
            model.b.weight.square().sum().backward()
            gs.update()

    assert not said(run)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("how", ["argument", "keyword"])
def test_guard_looks_at_the_gradients_of_its_closure(fused, how):
    torch.manual_seed(0)
    model, target = Net(), torch.zeros(16, 5)
    gs = attach(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    gs.guard(optimizer)
    for step, (x, _) in enumerate(batches("mlp", 6)):
        if step == 2:
            x[0, 0] = float("nan")
        runs = []

        def closure():
            runs.append(0)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            return loss

        before = [p.detach().clone() for p in model.parameters()]
        loss = optimizer.step(closure) if how == "argument" else optimizer.step(closure=closure)
        gs.update()
        moved = not all(torch.equal(p, q) for p, q in zip(before, model.parameters()))
        assert len(runs) == 1 and isinstance(loss, torch.Tensor) and moved == (step != 2)
    assert gs.steps == 5 and gs.skipped == 1


def test_gradients_that_no_site_has_seen_say_nothing_of_the_next_step():
    """A step of plain gradients, of which one is NaN: it is skipped, and the next one is counted as it ends."""
    model, (x, _) = Net(), next(batches("mlp", 1))
    gs = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    gs.guard(optimizer)
    for p in model.parameters():
        p.grad = torch.full_like(p, float("nan"))
    optimizer.step()
    assert said(gs.update) and all(p.isfinite().all() for p in model.parameters())
    optimizer.zero_grad()
    backward(model, model(x))
    optimizer.step()
    gs.update()
    assert (gs.steps, gs.skipped) == (1, 0)


def test_optimizers_that_compute_gradients_several_times_are_refused():
    model, x = Net(), next(batches("mlp", 1))[0]
    gs = attach(model)
    with pytest.raises(ValueError, match="LBFGS computes gradients several times a step.*do not guard it"):
        gs.guard(torch.optim.LBFGS(model.parameters()))

    class Twice(torch.optim.SGD):
        def step(self, closure):
            with torch.enable_grad():
                closure()
                return closure()

    optimizer = Twice(model.parameters(), 0.1)
    gs.guard(optimizer)
    with pytest.raises(RuntimeError, match="Twice computes gradients more than once a step"):
        optimizer.step(lambda: backward(model, model(x)))


def test_a_forgotten_update():
    model, x = Net(), next(batches("mlp", 1))[0]
    gs = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    gs.guard(optimizer)
    with pytest.raises(RuntimeError, match=r"SGD.step\(\) was called 101 times without update\(\)"):
        for _ in range(200):
            optimizer.zero_grad()
            backward(model, model(x))
            optimizer.step()
    gs.update()
    for _ in range(150):
        optimizer.step()
        gs.update()
    # By gs.step, which also updates by itself.
    (x, y), = batches("mlp", 1)
    for _ in range(120):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        gs.step(closure)


def trained_by(method, factors, drop_in=False):
    """A training of one step for each factor of the loss, and its warnings."""
    model, (x, y) = network("mlp"), next(batches("mlp", 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = GradScaler("cpu", method=method, model=model, max_consecutive_skips=0)
    gs = scaler.scaling if drop_in else attach(model, method, max_consecutive_skips=0)

    def run():
        for factor in factors:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=drop_in):
                loss = cross_entropy(model(x), y) * factor
            if drop_in:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                gs.update()

    return gs, said(run)


@pytest.mark.parametrize("drop_in", [False, True], ids=["attach", "drop-in"])
def test_a_dynamic_loss_scale_that_collapses_or_flushes(drop_in):
    nan = float("nan")
    for method, factors, words in (
        # One NaN batch lowers 2^-10 to 2^-11; the others cause no further message.
        ("dynamic:init=2^-10", [1.0, nan, nan, 1.0], "loss scale has fallen to 2^-11, because steps were not finite"),
        ("dynamic:init=2^-10", [2.0**10, 2.0**10], None),
        ("dynamic", [2.0**-36] * 3, "loss scale 2^16 flushes 9"),
        ("dynamic", [1.0, 1.0], None),
        ("dynamic", [1.0, nan, 1.0], None),
        ("gs", [2.0**-36, nan, nan, 1.0], None),
    ):
        gs, found = trained_by(method, factors, drop_in)
        assert len(found) == (words is not None), (method, factors, found)
        assert words is None or words in found[0] and "method 'gs'" in found[0]


def test_batches_that_are_not_finite_are_no_overflows():
    """In the report non-finite values are counted where they arrived first, by kind, and no site has overflowed."""
    gs, _ = trained_by("gs", [1.0, float("nan"), float("inf"), 1.0])
    report = gs.report()
    assert gs.skipped == 2 and [site["overflows"] for site in report.sites] == [0] * len(report.sites)
    assert sum(kinds["nan"] + kinds["infinite"] for kinds in report.non_finite.values()) == 2
    gs, _ = trained_by("gs", [1.0, 2.0**40])
    report = gs.report()
    (name,) = report.non_finite
    assert [site["name"] for site in report.sites if site["overflows"]] == [name] and report.non_finite[name]["overflow"] == 1


def test_a_forgotten_update_without_a_guard():
    model, gs = nn.Linear(2, 2), GradientScaling()
    x = torch.ones(1, 2)

    def run():
        for _ in range(1001):
            gs.backward(model(x).sum())

    found = said(run)
    assert len(found) == 1 and "1000 backward passes without update()" in found[0]


def test_what_is_not_supported_is_refused_with_the_remedy():
    x = next(batches("mlp", 1))[0]
    with pytest.raises(ValueError, match="torch.bfloat16 has no scaled gradients.*torch.autocast alone"):
        attach(Net(), dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="TorchScript"):
        attach(torch.jit.trace(nn.Linear(12, 5), x))
    model = Net()
    model.scale = nn.Parameter(torch.ones(5, dtype=torch.complex64))
    model.wrap = lambda h: (h * model.scale).abs()
    gs = attach(model)
    with pytest.raises(TypeError, match="scale is torch.complex64.*view_as_real"):
        model(x).sum().backward()
    model = Net()
    gs = attach(model)
    parameters = dict(model.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (x,)).square().mean()

    with pytest.raises(RuntimeError, match=r"torch.func differentiates.*detach\(\) first"):
        torch.func.grad(loss)(parameters)
    with pytest.raises(RuntimeError, match=r"is_grads_batched.*detach\(\) first"):
        out = model(x)
        torch.autograd.grad(out, model.a.weight, torch.eye(16)[:3, :, None].expand(3, 16, 5), is_grads_batched=True)
    with pytest.raises(Exception, match=r"cannot be exported or scripted: call detach\(\) first"):
        torch.export.export(model, (x,))
    with pytest.raises(Exception, match=r"cannot be exported or scripted: call detach\(\) first"):
        torch.jit.script(model)
    with pytest.raises(Exception, match=r"traced by torch.jit: call detach\(\) first"):
        torch.jit.trace(model, x)
    nested = Net(lambda h: torch.nested.nested_tensor([h[0], h[1]]).requires_grad_())
    attach(nested)
    with pytest.raises(RuntimeError, match="nested tensor has no scaled gradient.*to_padded_tensor"):
        nested(x)
    gs.detach()
    assert torch.func.grad(loss)(parameters)["a.weight"].abs().max() > 0


def test_nested_tensors_inside_of_a_model():
    class Inside(Net):
        def forward(self, x):
            h = self.a(x)
            nested = torch.nested.as_nested_tensor([h[:4], h[4:]])
            return self.b(torch.nested.to_padded_tensor(nested, 0.0).tanh())

    model = Inside()
    attach(model)
    with pytest.raises(RuntimeError, match="nested tensor has no scaled gradient"):
        model(next(batches("mlp", 1))[0]).sum().backward()


def test_gradient_penalties_beside_an_attached_model():
    """As in the README: second derivatives by plain autograd, with a scaled loss of them."""
    (x, _), = batches("mlp", 1)

    def penalty(critic, x):
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        return (g.flatten(1).norm(dim=1) - 1).square().mean()

    critic = network("mlp")
    (penalty(critic, x) * 2.0**-30).backward()
    true = [p.grad.clone() if p.grad is not None else None for p in critic.parameters()]
    critic.zero_grad()
    gs = attach(critic)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        penalty(critic, x)
    gs.detach()
    gs = GradientScaling()
    with torch.autocast("cpu", torch.float16, enabled=False):
        loss = penalty(critic, x)
    gs.backward(loss * 2.0**-30)
    pairs = [(p.grad, q) for p, q in zip(critic.parameters(), true) if q is not None]
    assert error(*zip(*pairs)) < 3e-3
