"""Steps: skipped on the device, repeated, decided late, saved and gone on with."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gradscale  # noqa: E402
from gradscale.torch import GradientScaling, TooManySkipsError, attach  # noqa: E402
from torch_models import NoReads, batches, cross_entropy, error, exact, network, train_on_small_losses  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
def test_nothing_is_read_from_backward_to_update(name, late):
    model = network(name)
    gs = attach(model, "gs:interval=1", deferred=late)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    gs.guard(optimizer)
    for step, (x, y) in enumerate(batches(name, 5)):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y) * 2.0**-30
        if step < 2:
            loss.backward()
            optimizer.step()
        else:
            with NoReads():
                loss.backward()
                optimizer.step()
        gs.update()
    assert gs.steps == 5 - late


def test_the_test_above_sees_a_read():
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoReads():
        torch.ones(1).item()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_batch_with_nan_changes_nothing(kind, fused):
    model = network("mlp")
    gs = attach(model)
    make = {"sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=fused), "adam": lambda p: torch.optim.Adam(p, fused=fused)}
    optimizer = make[kind](model.parameters())
    gs.guard(optimizer)

    def step(x, y):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        return gs.update()

    data = list(batches("mlp", 3))
    step(*data[0])
    weights = [p.detach().clone() for p in model.parameters()]
    state = copy.deepcopy(optimizer.state_dict()["state"])
    exponents = gs.sites.exponents.tolist()
    outcome = step(torch.full_like(data[1][0], float("nan")), data[1][1])
    assert not outcome.stepped and outcome.non_finite == "nan" and outcome.site_name == "4"
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters()))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(after[i][k])) for i in state for k, a in state[i].items() if a is not None)
    assert gs.sites.exponents.tolist() == exponents
    assert step(*data[2]).stepped
    assert not any(torch.equal(a, b) for a, b in zip(weights, model.parameters()))


def test_a_guard_that_ends_gives_the_optimizer_back():
    model = network("mlp")
    gs, optimizer = GradientScaling(), torch.optim.SGD(model.parameters(), 0.1)
    before = dict(optimizer.__dict__)
    gs.guard(optimizer)
    with pytest.raises(ValueError, match="guarded already"):
        gs.guard(optimizer)
    gs.detach()
    assert optimizer.__dict__ == before
    # A schedule that was wrapped around it meanwhile keeps its wrapper, which has no effect any more.
    end = gs.guard(optimizer)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    end()
    model[0].weight.grad = torch.full_like(model[0].weight, float("nan"))
    optimizer.step()
    assert model[0].weight.isnan().all()


def alternating(factors, steps, how, late=False):
    """Trains where one batch in three has a loss many times as large; weights, handle."""
    model = network("mlp")
    gs = attach(model, deferred=late, max_consecutive_skips=0) if how != "f32" else None
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    if gs and how == "guard":
        gs.guard(optimizer)
    for i, (x, y) in enumerate(batches("mlp", steps)):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y) * factors[i % len(factors)]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        if how == "step":
            gs.step(closure, optimizer)
        else:
            closure()
            optimizer.step()
            if gs:
                gs.update()
    return [p.detach() for p in model.parameters()], gs


@pytest.mark.parametrize(("factor", "repeats"), [(2.0**12, 0), (2.0**22, 1), (2.0**24, 1), (2.0**40, 20)])
def test_alternating_losses_lose_no_batch(factor, repeats):
    """Up to 2^24 one exponent serves both kinds, and the first large batch alone is repeated; beyond, each of them is."""
    true, _ = alternating([1.0, 1.0, factor], 60, "f32")
    weights, gs = alternating([1.0, 1.0, factor], 60, "step")
    assert gs.steps == 60 and gs.skipped == 0 and gs.repeats <= repeats and (gs.repeats > 0) == (repeats > 0)
    assert error(weights, true) < 2e-3


@pytest.mark.parametrize("late", [False, True])
def test_where_nothing_is_repeated_few_batches_are_lost(late):
    _, gs = alternating([1.0, 1.0, 2.0**22], 90, "guard", late)
    assert 1 <= gs.skipped <= 3


def test_a_repeat_takes_running_statistics_and_random_numbers_back():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 5))
    gs = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    masks, factors = [], [1.0, 2.0**20]
    model[2].register_forward_hook(lambda m, i, o: masks.append((o == 0).clone()))
    for factor, (x, y) in zip(factors, batches("mlp", 2)):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y) * factor
            loss.backward()
            return loss

        gs.step(closure, optimizer)
    assert gs.repeats == 1 and len(masks) == 3
    assert torch.equal(masks[1], masks[2]) and model[1].num_batches_tracked == 2


@pytest.mark.parametrize("how", ["model", "loss"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2.0**100])
def test_what_no_scale_mends_is_not_repeated(how, bad):
    """A loss that is not finite before anything is scaled is left out at once, though its layers are called several times; one
    that only its square puts beyond f32 has finite gradients, and is trained on."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(layer, torch.nn.Tanh(), layer)
    gs = attach(model) if how == "model" else GradientScaling()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    runs = []
    for target in (1.0, bad, 1.0):
        runs.append(0)

        def closure():
            runs[-1] += 1
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=how == "loss"):
                out = model(torch.ones(2, 4))
            loss = (out.float() - target).square().mean()
            loss.backward() if how == "model" else gs.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        loss = gs.step(closure, optimizer)
        if len(runs) == 2:
            # An infinite loss is no reason by itself.
            lost = bad != 2.0**100 and not (how == "loss" and bad == float("inf"))
            assert not loss.isfinite() and gs.outcome.stepped == (bad == 2.0**100)
            assert (runs[1] == 1) == (gs.outcome.cause == "not_finite") == lost
    assert runs[0] == runs[2] == 1
    assert gs.skipped == (bad != 2.0**100)


def test_fill_values_are_trained_on_like_in_f32():
    """A target of 1e20 among others: finite in f32, where clipping makes a step of it; it costs one repeat."""

    def run(scaled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        gs = attach(model) if scaled else None
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        g = torch.Generator().manual_seed(1)
        for i in range(30):
            x = torch.randn(16, 4, generator=g)
            y = x.sum(1, keepdim=True)
            if i % 10 == 5:
                y[3] = 1e18

            def closure():
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                return loss

            if gs:
                gs.step(closure, optimizer)
            else:
                closure()
                optimizer.step()
        return [p.detach() for p in model.parameters()], gs

    (weights, gs), (true, _) = run(True), run(False)
    assert gs.skipped == 0 and gs.steps == 30 and gs.repeats >= 1
    assert error(weights, true) < 5e-3


@pytest.mark.parametrize("late", [False, True])
def test_saved_and_gone_on_with_the_same_bits(late):
    def begin():
        model = network("conv")
        gs = attach(model, "gs:interval=2", deferred=late)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
        gs.guard(optimizer)
        return model, gs, optimizer

    data = list(batches("conv", 9))
    one = begin()
    train_on_small_losses(*one, data[:5])
    saved = copy.deepcopy([part.state_dict() for part in one])
    train_on_small_losses(*one, data[5:])
    two = begin()
    for part, state in zip(two, saved):
        part.load_state_dict(state)
    train_on_small_losses(*two, data[5:])
    assert all(torch.equal(a, b) for a, b in zip(one[0].state_dict().values(), two[0].state_dict().values()))
    assert one[1].sites.exponents.tolist() == two[1].sites.exponents.tolist()
    a, b = one[1].state_dict(), two[1].state_dict()
    assert a == b


def test_micro_batches_add_up():
    model = network("mlp")
    (x, y), = batches("mlp", 1)
    true = exact(model, lambda m: cross_entropy(m(x.double()), y))
    gs = attach(model)
    for i in range(2):
        model.zero_grad()
        for part in range(4):
            rows = slice(4 * part, 4 * part + 4)
            (cross_entropy(model(x[rows]), y[rows]) / 4).backward()
        assert error([p.grad for p in model.parameters()], true) < 3e-3
        assert gs.update().stepped
    assert gs.sites.row(gs.sites.index("4")).count == 16 * 5


def test_training_that_cannot_go_on_says_why():
    model = network("mlp")
    gs = attach(model, max_consecutive_skips=3)
    with pytest.raises(TooManySkipsError, match="3 steps in a row were skipped; the last was skipped: 4 received NaN"):
        for x, y in batches("mlp", 5):
            cross_entropy(model(x * float("nan")), y).backward()
            gs.update()


def test_decisions_are_cores():
    """The rows of a training, given to core's sites by hand, decide the same exponents."""
    model = network("mlp")
    gs = attach(model, "gs:interval=1")
    seen = {}
    by_hand = None
    for x, y in batches("mlp", 6):
        model.zero_grad()
        (cross_entropy(model(x), y) * 2.0**-12).backward()
        gs.update()
        names = gs.sites.names
        if by_hand is None:
            by_hand = gradscale.Sites("gs:interval=1", names)
            for index in range(len(names)):
                by_hand.decide(index, gs.sites.row(index))
        rows = np.stack([gs.sites.row(i).to_words() for i in range(len(names))])
        by_hand.finish(rows, False)
        assert by_hand.exponents.tolist() == gs.sites.exponents.tolist()
        seen.setdefault(tuple(by_hand.exponents), 0)


def test_late_and_early_agree_where_scales_do_not_move():
    def run(late):
        model = network("transformer")
        gs = attach(model, "gs:interval=100", deferred=late)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        gs.guard(optimizer)
        for x, y in batches("transformer", 4):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            gs.update()
        return list(model.parameters())

    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True)))


@pytest.mark.parametrize("method", ["nonsense", "gs:interval=0"])
def test_methods_are_refused_when_they_are_named(method):
    with pytest.raises(ValueError, match=method.split(",")[0]):
        attach(network("mlp"), method)
    with pytest.raises(ValueError, match="gs:paper decides inside a step"):
        attach(network("mlp"), "gs:paper", deferred=True)


@pytest.mark.parametrize("method", ["dynamic", "fixed:1024", "gs:exact,gamma=1e-4,interval=3", "gs:paper", "gs:authors,interval=2"])
def test_other_methods_train_the_same_way(method):
    model = network("mlp")
    gs = attach(model, method)
    (x, y), = batches("mlp", 1)
    true = exact(network("mlp"), lambda m: cross_entropy(m(x.double()), y))
    for _ in range(4):
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        assert error([p.grad for p in model.parameters()], true) < 3e-3
        assert gs.update().stepped


def test_wrong_calls_say_what_is_wrong():
    gs = GradientScaling()
    assert gs.update() is None and "0 sites, 0 steps" in str(gs.report())
    with pytest.raises(ValueError, match="which optimizer"):
        gs.step(lambda: None)
    optimizer = torch.optim.SGD(network("mlp").parameters(), 0.1)
    with pytest.raises(RuntimeError, match="no backward that begins at a scaled loss"):
        gs.step(lambda: torch.zeros(1), optimizer)
    with pytest.raises(ValueError, match="not a state of gradscale.torch"):
        gs.load_state_dict({})
    again = GradientScaling()
    again.load_state_dict(gs.state_dict())
    assert again.steps == 0
