"""Traces of trainings in PyTorch, which the program reads."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gradscale  # noqa: E402
from gradscale.torch import attach  # noqa: E402
from torch_models import batches, cross_entropy, network  # noqa: E402

torch.set_num_threads(1)

NAN = float("nan")
FACTORS = [1.0, 1.0, 2.0**30, 1.0, NAN, 1.0, 1.0, 1.0, 1.0]


def train(late, path=None, first=0):
    """Nine steps, one of which is repeated and one skipped; recorded from a step on."""
    model = network("mlp")
    gs = attach(model, "gs:interval=2", deferred=late)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, (x, y) in enumerate(batches("mlp", len(FACTORS))):
        if path and step == first:
            gs.start_trace(path)
            with pytest.raises(ValueError, match="already"):
                gs.start_trace(path)

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y) * FACTORS[step]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        gs.step(closure, optimizer)
    assert (gs.steps, gs.skipped) == (8, 1) and gs.repeats >= 1
    return gs


@pytest.mark.parametrize("late", [False, True])
def test_a_trace_says_what_was_decided_and_changes_nothing(late, tmp_path):
    path = tmp_path / "trace.jsonl"
    plain, gs = train(late), train(late, path)
    assert plain.sites.exponents.tolist() == gs.sites.exponents.tolist()
    gs.detach()
    steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert steps[0]["method"] == "gs:interval=2,history=ring"
    assert [step["iteration"] for step in steps if not step.get("repeated")] == list(range(1, 10))
    assert [step["iteration"] for step in steps if step["skipped"]] == [5]
    assert sum(step.get("repeated", False) for step in steps) == gs.repeats
    last = {site["name"]: site["next"] for site in steps[-1]["sites"]}
    assert last == dict(zip(gs.sites.names, gs.sites.exponents.tolist()))
    with pytest.raises(FileExistsError):
        gs.start_trace(path)


@pytest.mark.parametrize("late", [False, True])
def test_a_trace_may_begin_later(late, tmp_path):
    path = tmp_path / "trace.jsonl"
    gs = train(late, path, first=3)
    gs.detach()
    played = gradscale.replay(path)
    taken = [step["iteration"] for step in played["steps"] if not step["repeated"]]
    assert taken == list(range(4, 10)) and played["method"].startswith("gs:interval=2")


def test_the_engine_plays_the_trace_and_decides_the_same(tmp_path):
    """Only without repeats, because a replay does not know the exponents of a repeated attempt."""
    path = tmp_path / "trace.jsonl"
    model = network("conv")
    gs = attach(model, "gs:interval=1")
    gs.start_trace(path)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in batches("conv", 12):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        gs.update()
    gs.detach()
    steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for ours, played in zip(steps, gradscale.replay(path)["steps"]):
        assert [(site["name"], site["next"]) for site in ours["sites"]] == [(site["name"], site["next"]) for site in played["sites"]]
