"""Other people's code, unchanged but for an import."""

import copy
import gc
import importlib.util
import io
import os
import pathlib
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import gradscale.torch  # noqa: E402
from gradscale.torch import GradScaler, GradientScaling, attach  # noqa: E402
from torch_models import batches, cross_entropy, error, exact, network  # noqa: E402

torch.set_num_threads(1)
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"

LOOP = """
import torch
from torch.amp import GradScaler

def train(model, data, loss_of, factor=1.0):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = GradScaler("cpu")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for x, y in data:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(x)
            loss = loss_of(output, y) * factor
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    return loss.item() / factor, scaler
"""


def loop(ours):
    source = LOOP.replace("from torch.amp import GradScaler", "from gradscale.torch import GradScaler") if ours else LOOP
    names = {}
    exec(compile(source, "loop", "exec"), names)
    return names["train"]


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
def test_a_loop_whose_import_is_changed(name):
    data = list(batches(name, 2)) * 15
    results = {}
    for ours in (False, True):
        results[ours], scaler = loop(ours)(network(name), data, cross_entropy)
    assert abs(results[True] - results[False]) < 0.15 * max(results.values()) + 0.02
    small, scaler = loop(True)(network(name), data, cross_entropy, 2.0**-40)
    assert scaler.scaling.steps == 30 and scaler.get_scale() == 1.0


def test_the_state_has_the_same_keys_and_both_can_read_it():
    model = network("mlp")
    ours, theirs = GradScaler("cpu"), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(scaler):
        for x, y in batches("mlp", 3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    step(ours), step(theirs)
    state = ours.state_dict()
    assert set(theirs.state_dict()) == set(state) - {"gradscale"}
    torch.amp.GradScaler("cpu").load_state_dict(state)
    again = GradScaler("cpu")
    again.load_state_dict(theirs.state_dict())
    assert again.get_scale() == 1.0
    again = GradScaler("cpu")
    again.load_state_dict(state)
    weights = [p.detach().clone() for p in model.parameters()]
    step(ours)
    expected = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights):
            p.copy_(w)
    step(again)
    assert all(torch.equal(a, b) for a, b in zip(expected, model.parameters()))
    assert again.scaling.state_dict() == ours.scaling.state_dict()


def test_what_the_scaler_refuses():
    model = network("mlp")
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), GradScaler("cpu")
    (x, y), = batches("mlp", 1)
    with pytest.raises(AssertionError):
        scaler.update()
    with pytest.raises(ValueError):
        scaler.scale(3)
    with torch.autocast("cpu", torch.float16):
        a, b = scaler.scale([cross_entropy(model(x), y), cross_entropy(model(-x), y)])
    (a + b).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update()
    off = GradScaler("cpu", enabled=False)
    assert not off.is_enabled() and off.scale(a) is a and off.state_dict() == {}
    off.update()


@pytest.mark.parametrize("fused", [False, True])
def test_a_batch_that_is_not_finite_is_skipped(fused):
    model = network("mlp")
    optimizer, scaler = torch.optim.Adam(model.parameters(), 0.1, fused=fused), GradScaler("cpu", model=model)
    for i, (x, y) in enumerate(batches("mlp", 3)):
        optimizer.zero_grad()
        before = [p.detach().clone() for p in model.parameters()]
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(model(x * float("inf") if i == 1 else x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        moved = not all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        assert moved == (i != 1)
    assert scaler.scaling.skipped == 1 and scaler.scaling.report().non_finite == {"4": {"overflow": 0, "infinite": 0, "nan": 1}}


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_of_the_examples():
    assert example("loop").main(60) < 2.6


def test_lightning():
    pytest.importorskip("lightning")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss, scaling = example("lightning_module").main(2)
    assert loss < 0.9 and scaling.steps == 32 and scaling.skipped == 0


def test_hugging_face():
    pytest.importorskip("transformers"), pytest.importorskip("accelerate")
    losses, gs = example("hf_trainer").main(40)
    assert losses[-1] < losses[0] - 0.5 and gs.steps == 40
    assert "transformer.h.1.mlp.c_fc" in gs.sites.names


def test_trl_with_an_adapter_of_peft():
    for package in ("trl", "peft", "datasets"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install trl peft datasets")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses, gs = example("trl_sft").main(20)
    assert losses[-1] < losses[0] - 0.3 and gs.steps == 20 and gs.skipped == 0
    assert any("lora_A" in name for name in gs.sites.names), gs.sites.names


def test_accelerate_takes_the_scaler():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = network("mlp")
    accelerator.scaler = GradScaler("cpu", model=model)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.3 * 2.0**30))
    (x, y), = batches("mlp", 1)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(model(x), y)
        accelerator.backward(loss * 2.0**-30)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert not optimizer.step_was_skipped
        losses.append(loss.item())
    assert accelerator.scaler.scaling.steps == 12 and losses[-1] < 0.8 * losses[0]


def beside_autocast(model, x, loss_of):
    """Errors of gradients against f64: ours at 2^-36 of the loss, and PyTorch's, whose scale suits the loss as it is."""
    wide = x.double() if x.is_floating_point() else x
    true = exact(model, lambda m: loss_of(m(wide)))
    with torch.autocast("cpu", torch.float16):
        loss = loss_of(model(x))
    (loss * 1024).backward()
    theirs = error([p.grad / 1024 for p in model.parameters()], true)
    model.zero_grad()
    gs = GradientScaling()
    with torch.autocast("cpu", torch.float16):
        loss = loss_of(model(x))
    gs.backward(loss * 2.0**-36)
    assert gs.update().stepped
    return error([p.grad * 2.0**36 for p in model.parameters()], true), theirs


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "vit"])
def test_torchvision(name):
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    if name == "vit":
        model = models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=7)
        nn.init.normal_(model.heads.head.weight, std=0.1)
    else:
        model = getattr(models, name)(num_classes=7)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    x, y = torch.randn(4, 3, 32, 32), torch.arange(4)
    x = F.interpolate(x, 64) if name[:3] in ("squ", "shu") else x
    ours, theirs = beside_autocast(model, x, lambda out: F.cross_entropy(out.float() if out.dtype != torch.float64 else out, y))
    assert ours < 1.3 * theirs + 1e-3, (ours, theirs)


@pytest.mark.skipif(not os.environ.get("GRADSCALE_ALL"), reason="takes a while: python/test.sh --all")
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "convnext_atto", "efficientnet_b0"])
def test_timm(name):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=7, **({"img_size": 64} if "vit" in name else {}))
    y = torch.arange(4)
    ours, theirs = beside_autocast(model, torch.randn(4, 3, 64, 64), lambda out: F.cross_entropy(out if out.dtype == torch.float64 else out.float(), y))
    assert ours < 1.3 * theirs + 1e-3, (ours, theirs)


def test_gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    model = transformers.GPT2LMHeadModel(config)
    x = torch.randint(40, (3, 12))
    ours, theirs = beside_autocast(model, x, lambda out: cross_entropy(out.logits[:, :-1], x[:, 1:]))
    assert ours < 1.3 * theirs + 1e-3, (ours, theirs)


class Mnist(nn.Module):
    """The network of PyTorch's mnist example, as its readers know it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = self.dropout2(F.relu(self.fc1(torch.flatten(self.dropout1(x), 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def test_mnist():
    """PyTorch's MNIST loop, with Adadelta and StepLR, on pictures of ten patterns with noise; the loss is scaled by
    `factor`."""

    def train(factor):
        torch.manual_seed(0)
        model, patterns = Mnist(), torch.rand(10, 1, 28, 28)
        gs = attach(model) if factor != 1 else None
        # Adadelta's steps are proportional to the gradients if eps is.
        optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0 / factor, eps=1e-6 * factor**2)
        if gs:
            gs.guard(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        model.train()
        for epoch in range(2):
            for _ in range(10):
                target = torch.randint(10, (16,))
                data = patterns[target] + 0.1 * torch.randn(16, 1, 28, 28)
                optimizer.zero_grad()
                loss = F.nll_loss(model(data), target)
                (loss * factor).backward()
                optimizer.step()
                if gs:
                    assert gs.update().stepped
            scheduler.step()
        model.eval()
        target = torch.arange(100) % 10
        with torch.no_grad():
            return (model(patterns[target] + 0.1 * torch.randn(100, 1, 28, 28)).argmax(1) == target).float().mean()

    right, ours = train(1), train(2.0**-30)
    assert right > 0.8 and abs(ours - right) < 0.1, (right, ours)


class WordLanguageModel(nn.Module):
    """PyTorch's word_language_model, as its readers know it: a recurrent network with tied weights."""

    def __init__(self, words=30, width=16):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.0), nn.Embedding(words, width)
        self.rnn, self.decoder = nn.LSTM(width, width, 2), nn.Linear(width, words)
        self.decoder.weight = self.encoder.weight

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return F.log_softmax(self.decoder(self.drop(out)).flatten(0, 1), 1), hidden


def test_word_language_model():
    torch.manual_seed(0)
    model = WordLanguageModel()
    gs = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 2.0**30 * 2.0)
    gs.guard(optimizer)
    text = torch.arange(400) % 30
    batch, hidden, losses = text.view(4, 100).t(), None, []
    for epoch in range(6):
        hidden = None
        for i in range(0, 90, 10):
            hidden = tuple(h.detach() for h in hidden) if hidden is not None else (torch.zeros(2, 4, 16), torch.zeros(2, 4, 16))
            optimizer.zero_grad()
            out, hidden = model(batch[i : i + 10], hidden)
            loss = F.nll_loss(out, batch[i + 1 : i + 11].flatten())
            (loss * 2.0**-30).backward()
            optimizer.step()
            gs.update()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0], losses


def test_reports(tmp_path):
    model = network("conv")
    gs = attach(model)
    for x, y in batches("conv", 2):
        cross_entropy(model(x), y).backward()
        gs.update()
    report = gs.report()
    text = str(report)
    assert "2 steps, 0 repeats, 0 skipped" in text and text.count("\n") == 1 + len(gs.sites)
    pandas = pytest.importorskip("pandas")
    table = report.to_pandas()
    assert isinstance(table, pandas.DataFrame) and table.loc["9", "exponent"] == gs.sites.exponents[gs.sites.index("9")]
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        report.to_tensorboard(writer)
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) > 500


def test_which_layer_made_an_inf():
    model = network("mlp")
    attach(model)
    (x, _), = batches("mlp", 1)
    assert gradscale.torch.find_non_finite_layer(model, x) is None
    assert gradscale.torch.find_non_finite_layer(model, x * float("nan")) == "input"
    with torch.no_grad():
        model[2].weight.mul_(1e6)  # beyond a half
    assert gradscale.torch.find_non_finite_layer(model, x) == "2"


def test_hooks_of_others_see_gradients_as_they_are():
    """A hook that is no linear function, and one that looks."""
    model = network("mlp")
    gs = attach(model)
    (x, y), = batches("mlp", 1)
    seen = []

    def clip(module, inputs, out):
        out.register_hook(lambda g: seen.append(float(g.abs().max())) or g.clamp(-(2.0**-38), 2.0**-38))

    model[2].register_forward_hook(clip)
    (cross_entropy(model(x), y) * 2.0**-30).backward()
    twin = network("mlp").double()
    limits = []
    twin[2].register_forward_hook(
        lambda m, i, out: out.register_hook(lambda g: limits.append(float(g.abs().max())) or g.clamp(-(2.0**-38), 2.0**-38)) and None
    )
    (cross_entropy(twin(x.double()), y) * 2.0**-30).backward()
    assert abs(seen[0] - limits[0]) < 3e-3 * limits[0] and limits[0] > 2.0**-38
    assert error([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()]) < 6e-2
    gs.update()


def test_a_gradient_of_a_step_that_is_over():
    model = network("mlp")
    gs = attach(model)
    (x, y), = batches("mlp", 1)
    kept = []
    model[2].register_forward_hook(lambda m, i, out: out.register_hook(lambda g: kept.append((g, g.unscaled()))) and None)
    cross_entropy(model(x), y).backward()
    assert error([kept[0][0].unscaled()], [kept[0][1]]) < 1e-3
    gs.update()
    with pytest.raises(RuntimeError, match="of a step that is over"):
        kept[0][0].unscaled()


def test_copies_and_pickles_of_attached_models():
    model = network("mlp")
    gs = attach(model)
    (x, y), = batches("mlp", 1)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model[0].weight.zero_()
    cross_entropy(twin(x), y).backward()
    assert twin[0].weight.grad is not None and model[0].weight.grad is None and gs.update().stepped
    buffer = io.BytesIO()
    torch.save(twin, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert torch.equal(loaded(x), network("mlp")(x))
    # The file has no class of ours, which a load with a list of known classes would refuse.
    buffer.seek(0)
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU, nn.Tanh]):
        torch.load(buffer, weights_only=True)
    assert isinstance(twin.__dict__["forward"], type(model.__dict__["forward"]))
    with pytest.raises(ValueError, match="attached already"):
        attach(model)


def test_second_derivatives_are_refused():
    model = network("mlp")
    attach(model)
    (x, y), = batches("mlp", 1)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(cross_entropy(model(x), y), model[0].weight, create_graph=True)


def test_sparse_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 8, sparse=True), nn.Linear(8, 3))
    x = torch.tensor([1, 4, 4, 7])
    gs = attach(model)
    optimizer = torch.optim.SparseAdam(model[0].parameters())
    gs.guard(optimizer)
    (model(x).square().sum() * 2.0**-30).backward()
    optimizer.step()
    assert gs.update().stepped and model[0].weight.grad.is_sparse
    torch.manual_seed(0)
    twin = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3)).double()
    (twin(x).square().sum() * 2.0**-30).backward()
    assert error([model[0].weight.grad.to_dense()], [twin[0].weight.grad]) < 3e-3


def test_inputs_have_gradients_and_are_not_kept():
    model = network("mlp")
    gs = attach(model)
    (x, y), = batches("mlp", 1)
    wide = x.double().requires_grad_()
    cross_entropy(copy.deepcopy(nn.Sequential(*model)).double()(wide), y).backward()
    for _ in range(2):
        leaf = x.clone().requires_grad_()
        (cross_entropy(model(leaf), y) * 2.0**-30).backward()
        gs.update()
        assert type(leaf.grad) is torch.Tensor and error([leaf.grad * 2.0**30], [wide.grad]) < 1e-1
    gone = weakref.ref(leaf)
    del leaf
    gc.collect()
    assert gone() is None
