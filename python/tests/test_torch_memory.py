"""Memory over 2000 steps, for each style of loop: sites, Python's objects and the memory of the process do not grow.

    GRADSCALE_ALL=1 pytest -s test_torch_memory.py        prints the figures
"""

import copy
import gc
import os
import pathlib
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradscale.torch import GradientScaling, GradScaler, attach  # noqa: E402

torch.set_num_threads(1)
#: The whole of 2000 steps takes minutes, and 240 show a leak of one object a step.
ALL = os.environ.get("GRADSCALE_ALL")
STEPS = int(os.environ.get("GRADSCALE_MEMORY_STEPS", 2000 if ALL else 240))
#: Steps before the first look: allocators and caches have their sizes by then.
WARM = STEPS // 4
#: Growth of the process that allocators may show without a leak: 0.4 kB a step, of which a step here takes some hundred.
MAX_KILOBYTES = 1024
#: As many objects may come and go with caches of PyTorch; one object a step would be 180 or more.
MAX_OBJECTS = 100


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def loss_of(model, x):
    return model(x).square().mean()


class Style:
    """A loop of one style: its steps, and the training that it has."""

    def __init__(self, skips=50, late=None):
        self.model = net()
        self.gs = attach(self.model, max_consecutive_skips=skips, deferred=late)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.gs.guard(self.optimizer)
        self.x = torch.randn(4, 6)

    def step(self, i):
        self.optimizer.zero_grad()
        self.backward(i)
        self.optimizer.step()
        self.gs.update()

    def backward(self, i):
        loss_of(self.model, self.x).backward()


class Late(Style):
    def __init__(self):
        super().__init__(late=True)


class Gradients(Style):
    def backward(self, i):
        parameters = list(self.model.parameters())
        for p, g in zip(parameters, torch.autograd.grad(loss_of(self.model, self.x), parameters)):
            p.grad = g


class NotFinite(Style):
    def __init__(self):
        super().__init__(skips=0)

    def backward(self, i):
        (loss_of(self.model, self.x) * (float("nan") if i % 3 == 0 else 1.0)).backward()


class Lengths(Style):
    def backward(self, i):
        loss_of(self.model, torch.randn(1 + i % 37, 6)).backward()


class Exceptions(Style):
    def backward(self, i):
        def fail(g):
            raise ValueError

        out = self.model(self.x)
        if i % 2:
            out.register_hook(fail)
        try:
            out.square().mean().backward()
        except ValueError:
            pass


class RetainGrad(Style):
    def backward(self, i):
        h = self.model[0](self.x)
        out = self.model(self.x)
        out.retain_grad()
        (out.square().mean() + 0 * h.sum()).backward()


class RetainGraph(Style):
    """Two losses of one graph."""

    def backward(self, i):
        out = self.model(self.x)
        out[:, 0].square().mean().backward(retain_graph=True)
        (out[:, 1].square().mean() * 2.0**-20).backward()


class Custom(Style):
    """A Function that is made anew in each step, as in a notebook."""

    def backward(self, i):
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                return 2 * g * ctx.saved_tensors[0]

        Square.apply(self.model(self.x)).mean().backward()


class Frozen(Style):
    def backward(self, i):
        self.model[0].requires_grad_(i % 2 == 0)
        loss_of(self.model, self.x).backward()


class AttachedAgain(Style):
    def step(self, i):
        super().step(i)
        self.gs.detach()
        self.gs.attach(self.model)
        self.gs.guard(self.optimizer)


class Traced(Style):
    """A trace grows in its file alone."""

    def __init__(self, folder):
        super().__init__()
        self.gs.start_trace(str(folder / "run.jsonl"))


class DropIn(Style):
    def __init__(self):
        self.model = net()
        self.scaler = GradScaler("cpu", model=self.model)
        self.gs = self.scaler.scaling
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.x = torch.randn(4, 6)

    def step(self, i):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(self.model, self.x)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Functional(Style):
    """Weights that are new tensors in each step."""

    def __init__(self):
        self.gs, self.x = GradientScaling(), torch.randn(4, 6)
        self.weights = [torch.randn(8, 6), torch.randn(3, 8)]

    def step(self, i):
        first, second = (w.detach().requires_grad_() for w in self.weights)
        with torch.autocast("cpu", torch.float16):
            out = F.linear(torch.tanh(F.linear(self.x, first)), second)
        self.gs.backward(out.float().square().mean())
        self.gs.update()
        self.weights = [w - 1e-3 * w.grad for w in (first, second)]


class Adversaries(Style):
    """Two models that train in turn by two trainings."""

    def __init__(self):
        super().__init__()
        self.other = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        self.others = attach(self.other)

    def backward(self, i):
        self.other(self.model(self.x)).mean().backward()
        self.others.update()


class Copies(Style):
    """A deep copy of the model in each step, as for meta learning."""

    def step(self, i):
        twin = copy.deepcopy(self.model)
        loss_of(twin, self.x).backward()
        self.gs.update()


class Search(Style):
    """A new model in each step."""

    def step(self, i):
        self.model = net()
        self.gs.attach(self.model)
        loss_of(self.model, self.x).backward()
        self.gs.update()


class Checkpoints(Style):
    """Averages of weights, and states that are saved and loaded, some of them before update()."""

    def __init__(self):
        super().__init__()
        self.average = torch.optim.swa_utils.AveragedModel(self.model)

    def step(self, i):
        self.optimizer.zero_grad()
        self.backward(i)
        if i % 5 == 0:
            self.gs.load_state_dict(pickle.loads(pickle.dumps(self.gs.state_dict())))
        self.optimizer.step()
        self.gs.update()
        self.average.update_parameters(self.model)


STYLES = {
    "plain": Style, "rows that come late": Late, "autograd.grad": Gradients, "NaN batches": NotFinite, "other lengths": Lengths,
    "exceptions": Exceptions, "retain_grad": RetainGrad, "two losses": RetainGraph, "custom Functions": Custom, "freezing": Frozen,
    "detach and attach": AttachedAgain, "a trace": Traced, "the drop-in": DropIn, "functional": Functional, "adversaries": Adversaries,
    "deep copies": Copies, "a search over models": Search, "checkpoints and averages": Checkpoints,
}
#: In the ordinary test: those in which something is new in each step.
QUICK = ("NaN batches", "exceptions", "custom Functions", "functional", "detach and attach", "deep copies", "a search over models")


def kilobytes():
    """Resident memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", STYLES if ALL else QUICK)
def test_memory_is_flat(name, tmp_path):
    make = STYLES[name]
    style = make(tmp_path) if make is Traced else make()
    seen = []
    gc.collect()
    gc.freeze()
    try:
        for i in range(STEPS + 1):
            if i in (WARM, STEPS):
                gc.collect()
                seen.append((kilobytes(), len(gc.get_objects()), len(style.gs.sites), len(style.gs._labels), len(style.gs._hooks)))
            style.step(i)
    finally:
        gc.unfreeze()
        style.gs.detach()
    (before, objects, sites, labels, hooks), (after, objects_after, *ends) = seen
    print(f"\n{name}: {after - before} kB and {objects_after - objects} objects in {STEPS - WARM} steps, {sites} sites")
    assert after - before < MAX_KILOBYTES and objects_after - objects < MAX_OBJECTS
    # Hooks of parameters that are gone are dropped in batches of at most 128.
    assert ends[0] == sites and ends[1] <= labels + 8 and ends[2] <= hooks + 130
