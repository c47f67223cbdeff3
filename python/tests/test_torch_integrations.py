"""Training loops of other libraries, in FP16 by three changed lines. Each runs where its library is installed."""

import importlib.util
import pathlib
import re
import warnings

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guide/integrations.md"
EXAMPLES = ROOT / "python/examples"
#: Largest number of lines that an example changes.
CHANGED_LINES = 3


def needs(*packages):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.set_num_threads(1)
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install {' '.join(packages)}")


def run(name, *arguments):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        # gradscale's own warnings are failures; the libraries' are theirs.
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*(gradscale|scaled|update\\(\\)).*")
        spec.loader.exec_module(module)
        return module.main(*arguments)


def test_accelerate():
    needs("accelerate")
    loss, scaling = run("accelerate_loop")
    # 32 batches of an epoch, two for each step.
    assert loss < 0.6 and scaling.steps == 64 and scaling.skipped == 0
    assert scaling.sites.names


def test_grpo_of_trl():
    needs("trl", "datasets")
    rewards, scaling = run("trl_grpo", 15)
    assert rewards[-1] > rewards[0] + 0.1 and scaling.steps + scaling.skipped == 15
    assert "transformer.h.1.mlp.c_fc" in scaling.sites.names


def test_an_adapter_of_peft():
    needs("peft", "transformers")
    losses, scaling = run("peft_lora", 30)
    assert losses[-1] < losses[0] - 0.3 and scaling.steps == 30
    assert any("lora_A" in name for name in scaling.sites.names), scaling.sites.names


def test_a_recipe_with_sums_over_tokens():
    needs()
    losses, scaling = run("recipe_loop", 30)
    assert losses[-1] < losses[0] - 1.0 and scaling.steps == 30 and scaling.skipped == 0


def test_timm():
    needs("timm")
    losses, scaling, loss_scaler = run("timm_loop")
    # Eight batches of an epoch, two for each step.
    assert losses[-1] < losses[0] - 0.2 and scaling.steps == 12 and scaling.skipped == 0
    # timm's CheckpointSaver writes this state under this key.
    state = loss_scaler.state_dict()
    assert loss_scaler.state_dict_key == "amp_scaler" and state["steps"] == 12
    loss_scaler.load_state_dict(state)
    assert scaling.steps == 12


def test_the_scaler_of_torchvisions_references():
    needs("torchvision")
    losses, scaling = run("torchvision_epoch")
    assert losses[-1] < losses[0] - 0.2 and scaling.steps == 12 and scaling.skipped == 0


def test_a_guard_that_updates():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gradscale.torch import attach

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaling = attach(model)
    end = scaling.guard(optimizer, update=True)
    before = model.weight.detach().clone()
    for value in (1.0, float("nan"), 1.0):
        optimizer.zero_grad()
        model(torch.full((3, 4), value)).sum().backward()
        optimizer.step()
    assert (scaling.steps, scaling.skipped) == (2, 1)
    assert torch.isfinite(model.weight).all() and not torch.equal(model.weight, before)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).isfinite() and scaling.steps == 3
    # A batch that step() repeats is counted once.
    scaling.step(closure)
    assert scaling.steps == 4
    # An ended guard updates no longer.
    end()
    closure()
    optimizer.step()
    assert scaling.steps == 4


def diffs():
    """Each diff of the page, with the example whose name precedes it."""
    text = PAGE.read_text()
    found = re.findall(r"python/examples/(\w+)\.py[^\n]*\n\n```diff\n(.*?)```", text, re.DOTALL)
    assert text.count("```diff") == len(found)
    return found


def test_the_page_shows_three_lines_of_each_example():
    shown = diffs()
    names = {path.stem for path in EXAMPLES.glob("*.py") if "# 3" in path.read_text()} - {"loop"}
    assert {name for name, _ in shown} == names
    for name, diff in shown:
        source = (EXAMPLES / f"{name}.py").read_text()
        added = [line[1:].strip() for line in diff.splitlines() if line.startswith("+")]
        for line in added:
            assert line in source, (name, line)
        statements = [line for line in added if not line.startswith(("from ", "import "))]
        assert len(statements) < CHANGED_LINES and len(added) <= CHANGED_LINES + 1, (name, added)
