"""State of a training: names that do not accumulate, checkpoints, copies, pickles, replicas, and the model after
detach()."""

import copy
import gc
import io
import os
import pickle
import sys
import tempfile
import types
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import GradientScaling, GradScaler, attach  # noqa: E402
from torch_models import batches, cross_entropy, error, mlp, network, run_ranks  # noqa: E402

torch.set_num_threads(1)
#: Everything: takes minutes.
ALL = os.environ.get("GRADSCALE_ALL")


def functional(gs, weights, x):
    """A network of tensors that are no parameters of a module."""
    first, second = weights
    with torch.autocast("cpu", torch.float16):
        h = F.linear(torch.tanh(F.linear(x, first)), second)
    loss = h.float().square().mean()
    gs.backward(loss * 2.0**-30)
    return [w.grad for w in weights]


@pytest.mark.parametrize("parameters", [False, True])
def test_weights_that_are_new_tensors_in_each_step(parameters):
    torch.manual_seed(0)
    gs, x = GradientScaling(), torch.randn(8, 6)
    make = nn.Parameter if parameters else lambda w: w.requires_grad_()
    weights = [make(torch.randn(8, 6)), make(torch.randn(3, 8))]
    for step in range(40):
        gradients = functional(gs, weights, x)
        gs.update()
        weights = [make((w - 0.1 * g * 2.0**30).detach()) for w, g in zip(weights, gradients)]
        if step == 3:
            names, state = list(gs.sites.names), len(pickle.dumps(gs.state_dict()))
    assert list(gs.sites.names) == names and len(names) <= 4
    assert len(pickle.dumps(gs.state_dict())) < 1.2 * state and len(gs._labels) <= 8


def test_one_training_for_many_models():
    """A search over models: models without references are freed completely and immediately."""
    gs, (x, y) = GradientScaling(), next(batches("mlp", 1))
    seen = []
    gc.disable()
    try:
        for i in range(40):
            model = network("mlp", i)
            gs.attach(model)
            cross_entropy(model(x), y).backward()
            gs.update()
            seen.append(weakref.ref(model[0].weight))
            del model
        assert sum(ref() is not None for ref in seen) == 0
    finally:
        gc.enable()
    assert len(gs.sites) <= 6 and len(gs._hooks) <= 130
    assert len(gs._models) <= 2 and len(gs._forwards) <= 2 and len(gs._labels) <= 12


def test_deep_copies_in_each_step_have_the_sites_of_their_model():
    model, (x, y) = network("mlp"), next(batches("mlp", 1))
    gs, kept, seen = attach(model), [], []
    cross_entropy(model(x), y).backward()
    gs.update()
    names = list(gs.sites.names)
    for _ in range(12):
        twin = copy.deepcopy(kept[-1] if kept else model)
        cross_entropy(twin(x), y).backward()
        gs.update()
        assert all(map(torch.equal, [p.grad for p in twin.parameters()], [p.grad for p in model.parameters()]))
        # Some are kept for a while.
        kept = [*kept[-2:], twin]
        seen.append(weakref.ref(twin))
        del twin
    assert list(gs.sites.names) == names and len(gs._labels) <= 5 * 6
    assert [ref() is not None for ref in seen] == [False] * 9 + [True] * 3


def test_a_forward_whose_model_is_gone():
    model = network("mlp")
    gs, forward = attach(model), model.forward
    del model
    with pytest.raises(RuntimeError, match="the model of this forward was garbage-collected: keep a reference to the model"):
        forward(next(batches("mlp", 1))[0])
    gs.detach()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("saved_after", [0, 2])
@pytest.mark.parametrize("steps_between", [0, 2])
def test_a_state_that_is_loaded_between_backward_and_update(late, saved_after, steps_between):
    """The step in which it is loaded has no effect: everything continues as if it had been loaded before the step.

    Without steps between save and load the exponents are those of the state, so the rows of the discarded step would be
    added to those of the next.
    """
    (x, y), = batches("mlp", 1)

    def run(gs, model, steps, factor=1.0):
        for _ in range(steps):
            model.zero_grad()
            (cross_entropy(model(x), y) * factor).backward()
            gs.update()

    models = network("mlp"), network("mlp")
    ours, theirs = (attach(model, deferred=late) for model in models)
    run(ours, models[0], saved_after)
    state = ours.state_dict()
    run(ours, models[0], steps_between)
    (cross_entropy(models[0](x), y) * 2.0**-20).backward()
    ours.load_state_dict(state)
    theirs.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.update()
    assert ours.steps == theirs.steps
    for steps in (1, 2):
        for gs, model in zip((ours, theirs), models):
            run(gs, model, steps, 2.0**-3)
        assert str(ours.report()) == str(theirs.report())
    assert ours.state_dict() == theirs.state_dict() and ours.steps >= 2
    assert all(map(torch.equal, [p.grad for p in models[0].parameters()], [p.grad for p in models[1].parameters()]))


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrent_layer_that_is_the_model(kind):
    """Its forward is replaced twice: it computes in f32, and its results are scaled."""
    torch.manual_seed(0)
    model, x = kind(4, 5), torch.randn(3, 2, 4)
    attributes, plain = set(model.__dict__), model(x)[0]
    gs = attach(model)
    twin, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert torch.equal(loaded(x)[0], plain) and set(loaded.__dict__) == attributes
    for one in (model, twin):
        (one(x)[0].square().mean() * 2.0**-30).backward()
        gs.update()
    assert all(map(torch.equal, [p.grad for p in model.parameters()], [p.grad for p in twin.parameters()]))
    with torch.no_grad():
        twin.weight_ih_l0.zero_()
    assert not torch.equal(twin(x)[0], model(x)[0])
    gs.detach()
    assert torch.equal(model(x)[0], plain) and set(model.__dict__) == attributes


def test_a_hypernetwork():
    torch.manual_seed(0)

    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.make = nn.Linear(4, 8 * 6)

        def forward(self, x, z):
            return F.linear(x, self.make(z).view(8, 6))

    model = Hyper()
    gs = attach(model)
    for step in range(30):
        (model(torch.randn(5, 6), torch.randn(4)).square().mean() * 2.0**-30).backward()
        gs.update()
    assert len(gs.sites) <= 3


def two_losses(gs, loss_of, how, steps=6):
    for _ in range(steps):
        a, b = loss_of()
        found = []
        for loss in (a, b * 2.0**-24):
            found.append(how(loss))
        gs.update()
    return found


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.a(h), self.b(h)


def test_losses_of_one_graph_have_sites_of_their_own():
    """Several losses as in PCGrad and GradNorm: one backward pass after another, of the same forward pass."""

    def run(scaled):
        torch.manual_seed(0)
        model, x = Heads(), torch.randn(16, 6)
        gs = attach(model) if scaled else GradientScaling()
        weights = list(model.trunk.parameters())

        def losses():
            a, b = model(x)
            return a.square().mean(), b.square().mean()

        return two_losses(gs, losses, lambda loss: torch.autograd.grad(loss, weights, retain_graph=True)), gs

    (ours, gs), (true, _) = run(True), run(False)
    for a, b in zip(ours, true):
        assert error(a, b) < 3e-3
    assert sorted(name for name in gs.sites.names if "#" in name) == ["b#2", "trunk#2", "trunk>tanh#2"]


def test_micro_batches_share_sites():
    model, gs = network("mlp"), None
    gs = attach(model)
    for _ in range(2):
        for x, y in batches("mlp", 5):
            cross_entropy(model(x), y).backward()
        gs.update()
    assert not any("#" in name for name in gs.sites.names)


def test_detach_ends_a_forward_that_somebody_has_wrapped():
    model, (x, y) = network("mlp"), next(batches("mlp", 1))
    plain = copy.deepcopy(model)
    gs = attach(model)
    ours = model.forward
    model.forward = lambda x: ours(x)
    gs.detach()
    out = model(x)
    cross_entropy(out, y).backward()
    gs.update()
    assert len(gs.sites) == 0 and torch.equal(out, plain(x))
    recurrent = nn.LSTM(3, 4)
    gs = attach(nn.Sequential(recurrent))
    inner = recurrent.forward
    recurrent.forward = lambda *args: inner(*args)
    gs.detach()
    assert recurrent(torch.randn(2, 3))[0].dtype == torch.float32


class Keeps(nn.Module):
    """A module that keeps its scaling, as Lightning's do."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.gs = attach(self.net)

    def forward(self, x):
        return self.net(x)


def test_a_module_that_keeps_its_scaling():
    torch.manual_seed(0)
    model, (x, y) = Keeps(), next(batches("mlp", 1))
    cross_entropy(model(x), y).backward()
    model.gs.update()
    # A copy, as for an average of weights, is attached to the same scales.
    twin = copy.deepcopy(model)
    assert twin.gs is model.gs
    with torch.no_grad():
        twin.net[0].weight.zero_()
    assert not torch.equal(twin(x), model(x))
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    assert torch.equal(average(x), model(x))
    # In another process: a model that is not attached, and a training with the same exponents, which reports that.
    again = pickle.loads(pickle.dumps(model))
    assert again.gs.sites.exponents.tolist() == model.gs.sites.exponents.tolist() and again.gs.steps == 1
    cross_entropy(again(x), y).backward()
    with pytest.warns(UserWarning, match=r"was unpickled and scales no model yet: call its attach\(model\)"):
        again.gs.update()
    again.gs.attach(again.net)
    again.zero_grad()
    model.zero_grad()
    for one in (model, again):
        cross_entropy(one(x), y).backward()
        assert one.gs.update().stepped
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), again.parameters()))
    assert again.gs.state_dict() == model.gs.state_dict()


class Broadcast(torch.autograd.Function):
    """Broadcast of ``DataParallel``, on one device."""

    @staticmethod
    def forward(ctx, count, *tensors):
        ctx.count = count
        return tuple(t.clone() for _ in range(count) for t in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        size = len(gradients) // ctx.count
        return None, *(sum(gradients[i::size]) for i in range(size))


def replicate(network, count):
    """``torch.nn.parallel.replicate``, on one device."""
    places, parameters = zip(*network.named_parameters())
    copies, modules = Broadcast.apply(count, *parameters), dict(network.named_modules())
    for number in range(count):
        twins = {name: module._replicate_for_data_parallel() for name, module in modules.items()}
        for name, module in modules.items():
            for key in module._modules:
                twins[name]._modules[key] = twins[f"{name}.{key}".lstrip(".")]
            for key in module._parameters:
                setattr(twins[name], key, copies[number * len(places) + places.index(f"{name}.{key}".lstrip("."))])
        yield twins[""]


def test_replicas_run_themselves():
    """Replicas as ``DataParallel`` creates them."""
    x, y = next(batches("mlp", 1))
    layer = nn.Linear(12, 5)
    attach(layer)
    twin = layer._replicate_for_data_parallel()
    twin.weight, twin.bias = layer.weight.detach() + 1, layer.bias.detach()
    assert error([twin(x)], [F.linear(x, layer.weight + 1, layer.bias)]) < 1e-3
    assert error([layer(x)], [F.linear(x, layer.weight, layer.bias)]) < 1e-3
    assert layer.__dict__["forward"].module is layer and twin.__dict__["forward"].module is twin
    model = network("mlp")
    (cross_entropy(model(x), y) * 2.0**-36).backward()
    true = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    gs = attach(model)
    out = torch.cat([replica(part) for replica, part in zip(replicate(model, 2), x.chunk(2))])
    (cross_entropy(out, y) * 2.0**-36).backward()
    assert error([p.grad for p in model.parameters()], true) < 3e-3 and gs.update().stepped
    # On another device, which here is one without memory.
    with pytest.raises(RuntimeError, match="gradients are on cpu and on meta.*DistributedDataParallel"):
        gs.scale(torch.ones(2, device="meta", requires_grad=True)).sum().backward()


@pytest.mark.skipif(torch.cuda.is_available(), reason="DataParallel then wants the model on a GPU")
@pytest.mark.parametrize("outside", [False, True])
def test_data_parallel_without_a_gpu(outside):
    x, y = next(batches("mlp", 1))
    plain = network("mlp")
    (cross_entropy(plain(x), y) * 2.0**-36).backward()
    model = network("mlp")
    wrapped = nn.DataParallel(model)
    gs = attach(wrapped if outside else model)
    for again in (wrapped, copy.deepcopy(wrapped)):
        (cross_entropy(again(x), y) * 2.0**-36).backward()
        assert error([p.grad for p in again.parameters()], [p.grad for p in plain.parameters()]) < 3e-3 and gs.update().stepped
    names = list(gs.sites.names)
    assert names and all(name.startswith("module.") == outside for name in names)
    # A pickled model is not attached.
    assert torch.equal(pickle.loads(pickle.dumps(wrapped))(x), plain(x))


def loop(scaler, model, optimizer, data):
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_checkpoint_of_the_drop_in_goes_on_with_torchs_scaler_and_back():
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(GradScaler("cpu", init_scale=2.0**15).state_dict())
    assert theirs.get_scale() == 2.0**15
    model = network("mlp")
    optimizer, data = torch.optim.SGD(model.parameters(), 0.1), list(batches("mlp", 8))
    ours = GradScaler("cpu", model=model)
    loop(ours, model, optimizer, data)
    state = pickle.loads(pickle.dumps(ours.state_dict()))
    assert 2.0**10 <= state["scale"] <= 2.0**24 and ours.get_scale() == 1.0
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(state)
    before = [p.detach().clone() for p in model.parameters()]
    loop(theirs, model, optimizer, data[:1])
    # The first step is taken: that scale was none at which gradients overflow.
    assert theirs.get_scale() == state["scale"] and not any(torch.equal(p, q) for p, q in zip(before, model.parameters()))
    back = GradScaler("cpu", model=model)
    back.load_state_dict(theirs.state_dict())
    assert back.state_dict()["scale"] == state["scale"]
    loop(back, model, optimizer, data)
    assert back.scaling.steps == 8


def test_the_drop_in_is_pickled_and_copied():
    model = network("mlp")
    optimizer, data = torch.optim.SGD(model.parameters(), 0.1), list(batches("mlp", 3))
    scaler = GradScaler("cpu", model=model)
    loop(scaler, model, optimizer, data)
    for again in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert again.get_scale() == 1.0 and again.scaling.state_dict() == scaler.scaling.state_dict()
        loop(again, model, optimizer, data)
    buffer = io.BytesIO()
    torch.save(scaler, buffer)


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        n = (torch.arange(16) * (1 + i % 3) + i) % 32
        return {"input_ids": n, "labels": n}


def train_by_transformers(folder, resume=None):
    """Twelve steps of a tiny GPT-2 by the Trainer, on the ranks that the environment names: weights, and the training."""
    import transformers

    from gradscale.torch.huggingface import GradientScalingCallback

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    gs = attach(model, "gs:interval=2")
    settings = transformers.TrainingArguments(
        folder, max_steps=12, save_steps=6, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = transformers.Trainer(model, settings, train_dataset=Words(), callbacks=[GradientScalingCallback(gs)])
    trainer.train(resume_from_checkpoint=resume)
    return [p.detach().clone() for p in model.parameters()], gs


def test_transformers_resume_with_the_same_bits():
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    with tempfile.TemporaryDirectory() as folder:
        (weights, gs), (resumed, again) = train_by_transformers(folder), train_by_transformers(folder, f"{folder}/checkpoint-6")
    assert all(map(torch.equal, weights, resumed))
    assert gs.steps == again.steps == 12 and gs.sites.exponents.tolist() == again.sites.exponents.tolist()


def ranks_by_transformers(rank, ranks, folder, resume, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    weights, gs = train_by_transformers(folder, resume)
    kind = "resumed" if resume else "whole"
    torch.save((weights, gs.state_dict()), f"{folder}/{kind}-{rank}.pt")


@pytest.mark.skipif(not ALL, reason="takes a minute: python/test.sh --all")
def test_transformers_keep_the_state_of_every_rank():
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    with tempfile.TemporaryDirectory() as folder:
        for resume in (None, f"{folder}/checkpoint-6"):
            run_ranks(ranks_by_transformers, 2, folder, resume, 30700 + os.getpid() % 400 + bool(resume))
        ends = {kind: [torch.load(f"{folder}/{kind}-{rank}.pt") for rank in (0, 1)] for kind in ("whole", "resumed")}
    for (weights, state), (resumed, again) in zip(ends["whole"], ends["resumed"]):
        assert all(map(torch.equal, weights, resumed)) and state == again and state["steps"] == 12
    # The states must differ, because otherwise one state for both would pass.
    assert ends["whole"][0][1] != ends["whole"][1][1]


#: Name of the callback in the checkpoint from which each training is resumed; "Callback" is the one before it was renamed.
CALLBACK_NAMES = {"whole": None, "resumed": "GradientScalingCallback", "resumed from the former name": "Callback"}


def ranks_by_callback(rank, ranks, folder):
    """Calls of the callback as by the Trainer, without transformers: a whole training, and a resumed one."""
    import torch.distributed as dist

    stand_in_for_transformers()
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    for kind, name in CALLBACK_NAMES.items():
        model, gs = train_by_callback(rank, folder, name)
        end = model.state_dict(), gs.state_dict(), gs.sites.exponents.tolist()
        torch.save(end, f"{folder}/{kind}-{rank}.pt")
    dist.destroy_process_group()


def train_by_callback(rank, folder, resume_name):
    import torch.distributed as dist

    from gradscale.torch.huggingface import GradientScalingCallback

    model = network("mlp")
    gs, control = attach(model, "gs:interval=2"), types.SimpleNamespace(should_save=False)
    optimizer, data = torch.optim.SGD(model.parameters(), 0.1), list(batches("mlp", 8))
    callback, state = GradientScalingCallback(gs), types.SimpleNamespace(stateful_callbacks={}, global_step=0)
    if resume_name:
        weights, saved = torch.load(f"{folder}/saved-{rank}.pt", weights_only=False)
        model.load_state_dict(weights)
        state = types.SimpleNamespace(stateful_callbacks={resume_name: saved}, global_step=4)
    callback.on_train_begin(None, state, control, optimizer)
    while state.global_step < 8:
        x, y = data[state.global_step]
        optimizer.zero_grad()
        # Ranks see losses of other sizes.
        (cross_entropy(model(x), y) * 2.0 ** (-8 * rank)).backward()
        optimizer.step()
        state.global_step += 1
        callback.on_optimizer_step(None, state, control)
        control.should_save = state.global_step == 4 and not resume_name
        callback.on_step_end(None, state, control)
        if control.should_save:
            # The Trainer has the first rank alone write, and all read.
            saved = [callback.state() if rank == 0 else None]
            dist.broadcast_object_list(saved)
            torch.save((copy.deepcopy(model.state_dict()), saved[0]), f"{folder}/saved-{rank}.pt")
    return model, gs


def stand_in_for_transformers():
    """The two classes of transformers on which the callback is built."""
    names = types.ModuleType("transformers"), types.ModuleType("transformers.trainer_callback")
    names[0].TrainerCallback, names[1].ExportableState = type("TrainerCallback", (), {}), type("ExportableState", (), {})
    sys.modules.update({module.__name__: module for module in names})


def test_a_callback_keeps_the_state_of_every_rank():
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(ranks_by_callback, 2, folder)
        ends = {kind: [torch.load(f"{folder}/{kind}-{rank}.pt") for rank in (0, 1)] for kind in CALLBACK_NAMES}
    for kind in CALLBACK_NAMES:
        for (weights, state, _), (resumed, again, _) in zip(ends["whole"], ends[kind]):
            assert all(map(torch.equal, weights.values(), resumed.values())) and state == again and state["steps"] == 8
    # The states must differ, because otherwise one state for both ranks would pass.
    assert ends["whole"][0][2] != ends["whole"][1][2]
