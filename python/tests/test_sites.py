"""Decisions: against a recorded training of the engine, against the rule written once more in numpy, and by hand."""

import copy
import json
import pickle
from pathlib import Path

import gradscale as gs
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

# gradscale train --task classify --network mlp --batch 4 --width 1 --iters 40 --lr 2 --threads 1 --method gs:interval=3
# --trace trace.jsonl, without its operands: gradients that move by up to 2^22 from one decision to the next.
TRACE = Path(__file__).parent / "trace.jsonl"


def trace():
    return [json.loads(line) for line in TRACE.read_text().splitlines()]


def rows_of(step):
    rows = np.zeros((len(step["sites"]), gs.ROW_WORDS), np.uint32)
    for row, seen in zip(rows, step["sites"]):
        row[: len(seen["words"])] = seen["words"]
        row[280:281].view(np.int32)[:] = seen["exponent"]
    return rows


def test_sites_decide_what_the_engine_decided():
    steps = trace()
    sites = gs.Sites("gs:interval=3", [seen["name"] for seen in steps[0]["sites"]])
    # The batches that the training skipped were NaN in the forward pass already, which a trace does not have.
    forward = sites.add("net/forward", "forward")
    moved = skipped = 0
    for step in steps:
        seen = gs.observe([np.nan if step["skipped"] else 1.0])
        rows = np.concatenate([rows_of(step), seen.to_words()[None]])
        for index in np.flatnonzero(sites.decides_in_step):
            sites.decide(index, gs.Stats._from_words(rows[index]))
        assert sites.exponents.tolist() == [*(seen["exponent"] for seen in step["sites"]), 0]
        outcome = sites.finish(rows, step["skipped"], order=[forward, 0, 1, 2])
        assert outcome.stepped != step["skipped"] and (outcome or outcome.site_name == "net/forward")
        assert sites.exponents.tolist() == [*(seen["next"] for seen in step["sites"]), 0]
        skipped += step["skipped"]
        moved += sum(seen["exponent"] != seen["next"] for seen in step["sites"])
        # A checkpoint anywhere changes nothing.
        sites = pickle.loads(pickle.dumps(sites))
    assert moved > 20 and skipped > 0


def test_a_replay_finds_the_exponents_again():
    steps = trace()
    played = gs.replay(TRACE)
    assert played["method"] == "gs:interval=3,history=ring"
    assert played["skipped"] == sum(step["skipped"] for step in steps) > 0
    for step, was in zip(played["steps"], steps):
        assert [site["exponent"] for site in step["sites"]] == [seen["exponent"] for seen in was["sites"]]
        assert [site["next"] for site in step["sites"]] == [seen["next"] for seen in was["sites"]]
    other = gs.replay(str(TRACE), "fixed:1024")
    assert {site["exponent"] for step in other["steps"] for site in step["sites"]} == {10}


def exact(x, ppm=1000, window=11, room=6):
    """The exact rule as in the specification, in numpy. None if nothing can be decided."""
    x = np.abs(x[x != 0].astype(np.float64))
    if x.size == 0:
        return None
    gamma = lambda k: np.count_nonzero(x <= 2.0 ** (-25 - k))
    fits = lambda k, free: (gamma(k) - free) * 1_000_000 <= ppm * x.size
    k_of = next(k for k in range(160, -160, -1) if x.max() * 2.0**k < 65520)
    least = lambda free, some: next(k for k in range(-170, 170) if fits(k, free) and not (some and gamma(k) == x.size))
    k_uf, highest = least(0, False), k_of - 2
    k_lo = k_uf if k_uf <= highest else min(least(gamma(highest), True), highest)
    return int(np.clip(max(k_lo, min(k_lo + window, k_of - room)), -152, 101))


@given(
    hnp.arrays(
        np.float32,
        st.integers(1, 60),
        elements=st.builds(
            lambda sign, mantissa, exponent: float(np.float32(sign * mantissa * 2.0**exponent)),
            st.sampled_from([-1, 0, 1]),
            st.floats(1, 2, width=32),
            st.integers(-70, 60),
        ),
    )
)
def test_the_rule_is_the_specifications(x):
    row = gs.observe(x)
    expected = exact(x)
    if expected is None:
        with pytest.raises(gs.NoDecisionError):
            gs.Rule().decide(row)
    else:
        assert gs.Rule().decide(row).exponent_delta == expected


def step(sites, values, found_inf=None, **more):
    """A step whose sites see these true values."""
    rows = np.zeros((len(sites), gs.ROW_WORDS), np.uint32)
    for index, value in enumerate(values):
        x = np.float32(np.atleast_1d(value))
        if sites.decides_in_step[index]:
            sites.decide(index, gs.observe(x))
        gs.store(x, int(sites.exponents[index]), row=rows[index], detail=int(sites.details[index]))
    return sites.finish(rows, found_inf, **more)


def test_a_batch_that_does_not_fit_is_repeated():
    sites = gs.Sites("gs", ["logits", "layer"])
    assert step(sites, [1e-6, 1e-6]).stepped and sites.can_repeat
    before = sites.exponents
    outcome = step(sites, [1e6, np.inf], repeatable=True)
    assert not outcome and outcome.kind == "repeat"
    assert (outcome.site, outcome.site_name, outcome.non_finite) == (0, "logits", "overflow")
    assert outcome.exponent == before[0] and "logits overflowed at 2^" in str(outcome)
    assert sites.decides_in_step.all()
    assert step(sites, [1e6, 1e6], repeatable=True, failed_attempts=1).stepped
    # One batch beyond the range that FP16 can serve together with the others, which keep their exponent.
    assert np.array_equal(sites.exponents, before)


def test_where_nothing_can_be_repeated_a_skip_is_remembered():
    sites = gs.Sites("gs:interval=1", ["logits", "layer"])
    usual = np.logspace(-9, 0, 50)
    for _ in range(4):
        assert step(sites, [usual, usual]).stepped
    outcome = step(sites, [usual * 2**12, np.inf])
    assert (outcome.kind, outcome.cause, outcome.non_finite) == ("skipped", "again", "overflow")
    # The guard keeps headroom for such a batch for 512 steps, also at the site after it, whose own values were lost.
    for _ in range(100):
        assert step(sites, [usual, usual]).stepped
    assert step(sites, [usual * 2**12, usual * 2**12]).stepped


def test_late_rows_decide():
    sites = gs.Sites("gs:interval=1", ["a"], deferred=True)
    assert sites.deferred and sites.exponents.tolist() == [0]
    words = gs.observe(np.float32([1e-6])).to_words()[None]
    assert sites.finish(words).stepped
    assert sites.exponents.tolist() == [6] and not sites.decides_in_step.any()


def test_nan_is_no_problem_of_scales():
    sites = gs.Sites("gs", ["a"])
    step(sites, [1e-3])
    before = sites.exponents.tolist()
    outcome = step(sites, [np.nan], repeatable=True)
    assert (outcome.kind, outcome.non_finite) == ("repeat", "nan")
    outcome = step(sites, [np.nan], repeatable=True, failed_attempts=1)
    assert (outcome.kind, outcome.cause, outcome.non_finite) == ("skipped", "not_finite", "nan")
    assert "not a scaling problem" in str(outcome) and sites.exponents.tolist() == before


def test_a_loss_scale_is_one_number_everywhere():
    sites = gs.Sites("dynamic:init=1024,interval=2", ["a", "b"])
    assert sites.exponents.tolist() == [10, 10] and sites.loss_exponent == 10 and not sites.can_repeat
    assert step(sites, [1.0, 1.0]).stepped and step(sites, [1.0, 1.0]).stepped
    assert sites.exponents.tolist() == [11, 11]
    outcome = step(sites, [1e9, np.inf])
    assert (outcome.kind, outcome.site_name) == ("skipped", "a") and sites.exponents.tolist() == [10, 10]


def test_amax_is_the_recipe_of_fp8_libraries():
    """Delayed scaling: 2^floor(log2(65504 / max of the last rows)), from 2^0, unchanged where a row is not finite."""
    sites, history = gs.Sites("amax:history=3,margin=1", ["a"]), []
    assert not sites.can_repeat and not sites.decides_in_step.any() and sites.exponents.tolist() == [0]
    for value in [1.0, 3.0, 0.25, 0.5, 0.5, 40.0, 0.1, 0.1]:
        overflows = value * 2.0 ** sites.exponents[0] >= 65520
        assert step(sites, [value]).stepped != overflows
        history.append(value)
        assert sites.exponents[0] == np.floor(np.log2(65504 / max(history[-3:]))) - 1
    before = sites.exponents[0]
    assert step(sites, [np.inf]).kind == "skipped" and sites.exponents[0] == before
    assert gs.Rule("amax:margin=2").decide(gs.observe([1.0])).exponent_delta == 13
    assert gs.Rule("amax").decide(gs.observe([1.0])).limited_by == "amax"


def test_loss_scales_by_name():
    named = {name: method for name, method, about in gs.baselines() if len(about) > 30}
    assert named["torch"] == "dynamic:wgrad=half" and len(named) == len(gs.baselines()) == 8
    assert gs.LossScale("megatron").exponent == 32 and gs.LossScale("zhao").exponent == 0
    scale = gs.LossScale("torch-20th", total_steps=40)
    scale.update()
    assert scale.exponent == 16
    scale.update()
    assert scale.exponent == 17 and pickle.loads(pickle.dumps(scale)) == scale
    assert gs.Sites("dynamic:interval=steps/20", ["a"], total_steps=400).state_dict()["method"] == "dynamic:interval=20"
    with pytest.raises(ValueError, match="needs the number of training steps"):
        gs.LossScale("torch-20th")


def test_reports_and_histories():
    sites = gs.Sites("gs:interval=1", ["a"])
    assert sites.report() == [] and sites.row(0) is None
    step(sites, [[1e-6, 1e-3]])
    (site,) = sites.report()
    assert site["name"] == "a" and site["exponent"] == sites.exponents[0] and site["flushed"] == 0
    assert site["log2_amax"] == pytest.approx(np.log2(1e-3), abs=1e-6)
    assert [decision["trigger"] for decision in sites.history(0)] == ["first"]
    assert sites.row(0).count == 2 and sites.index("a") == 0


@pytest.mark.parametrize("method", ["gs:interval=2", "dynamic:2", "delayed", "logmax", "amax", "amax:history=4,margin=1", "torch", "fixed:8"])
def test_saved_and_restored_anywhere(method):
    rng = np.random.default_rng(3)
    names = ["a", "b"]
    values = [10.0 ** rng.uniform(-6, 3, 2) for _ in range(30)]
    straight = gs.Sites(method, names)
    broken = gs.Sites(method, names)
    for value in values:
        assert str(step(straight, value)) == str(step(broken, value))
        state = json.loads(json.dumps(broken.state_dict()))
        broken = gs.Sites(method, names)
        broken.load_state_dict(state)
        assert np.array_equal(straight.exponents, broken.exponents)
        assert np.array_equal(straight.decides_in_step, broken.decides_in_step) and broken.state_dict() == straight.state_dict()
    twin = copy.deepcopy(straight)
    step(twin, values[0])
    assert twin.state_dict() != straight.state_dict() or method == "fixed:8"


def test_what_cannot_be_restored_changes_nothing():
    sites = gs.Sites("gs", ["a", "b"])
    step(sites, [1.0, 1.0])
    before = sites.state_dict()
    for broken in (
        {},
        gs.Sites("gs", ["a", "c"]).state_dict(),
        gs.Sites("gs", ["a"]).state_dict(),
        {**before, "method": "none"},
        {**before, "sites": "[{]"},
        {**before, "loss_scale": [9, 9]},
    ):
        with pytest.raises(ValueError) as caught:
            sites.load_state_dict(broken)
        assert str(caught.value) and sites.state_dict() == before


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: gs.Sites("gs:gamma=2"), ValueError),
        (lambda: gs.Sites("gs", ["a", "a"]), ValueError),
        (lambda: gs.Sites("gs").add("a", "layer"), ValueError),
        (lambda: gs.Sites("gs").index("a"), KeyError),
        (lambda: gs.Sites("gs").decide(0, None), ValueError),
        (lambda: gs.Sites("gs", ["a"]).decide(0, gs.Rule().decide(gs.observe([1.0]))), ValueError),
        (lambda: gs.Sites("gs", ["a"]).finish(np.zeros((2, gs.ROW_WORDS), np.uint32)), ValueError),
        (lambda: gs.Sites("gs", ["layer"]).finish(np.full((1, gs.ROW_WORDS), 3, np.uint32)), ValueError),
        (lambda: gs.Sites("gs", ["a"]).finish(np.zeros((1, gs.ROW_WORDS), np.uint32), order=[1]), ValueError),
        (lambda: gs.Sites("gs:paper", deferred=True), ValueError),
        (lambda: gs.Sites("gs:paper", ["a"]).decide(0, gs.observe([1.0])), ValueError),
        (lambda: gs.Rule("dynamic"), ValueError),
        (lambda: gs.LossScale("gs"), ValueError),
        (lambda: gs.replay("no such file"), FileNotFoundError),
        (lambda: gs.replay(__file__), ValueError),
    ],
)
def test_refuses(call, error):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value)


def test_a_row_that_is_none_names_its_site():
    with pytest.raises(ValueError, match="layer: "):
        gs.Sites("gs", ["layer"]).finish(np.full((1, gs.ROW_WORDS), 3, np.uint32))


def test_the_papers_rules():
    """Theorem 1 by its formula: with λ = 6e-8 and σ = √N · rms · rms, the least scale is λ / (σ √2 erf⁻¹(γ′))."""
    rng = np.random.default_rng(4)
    dy, w = (rng.standard_normal(4096).astype(np.float32) * scale for scale in (1e-6, 1e-3))
    rows = [gs.observe(x, detail="moments") for x in (dy, w)]
    sigma = np.sqrt(64) * np.sqrt(np.mean(dy.astype(float) ** 2)) * np.sqrt(np.mean(w.astype(float) ** 2))
    expected = int(np.floor(np.log2(6e-8 / (sigma * 1.253314465e-3)))) + 1
    decision = gs.Rule("gs:paper").decide_matmul(*rows, (64, 64))
    assert (decision.exponent_delta, decision.limited_by) == (expected, "threshold") and decision.flushed_predicted <= 1e-3
    with pytest.raises(gs.NoDecisionError):
        gs.Rule("gs:paper").decide_matmul(gs.observe(dy), rows[1], (64, 64))
    site = gs.Sites("gs:paper", ["a"])
    assert site.decide(0, decision, 3, measured_at=3) == expected + 3


def test_schedules():
    scale = gs.LossScale("dynamic:2")
    assert gs.LossScale("dynamic:init=4,interval=2").scale == 4
    for found_inf in (False, True, False, False):
        scale.update(found_inf)
    assert pickle.loads(pickle.dumps(scale)) == scale
    delayed = gs.LossScale("delayed")
    delayed.update(amax=1.0)
    other = gs.LossScale("delayed")
    other.load_state_dict(delayed.state_dict())
    assert other == delayed and other.exponent == delayed.exponent
    with pytest.raises(ValueError):
        other.load_state_dict({"method": "delayed", "words": [1]})
    assert gs.propose_fixed(0.5) == 16 and gs.propose_fixed(0.0) is None


def test_examples_of_the_documentation():
    import doctest

    assert doctest.testmod(gs).failed == 0
    package = Path(__file__).parents[1]
    for page in package / "README.md", package.parent / "docs/numpy.md":
        if page.exists():
            assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_types_name_what_is_there():
    """The types of the extension, its functions, classes and their members: all that is there, and nothing else."""
    import ast

    def names(body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.AnnAssign):
                yield node.target.id

    def public(thing):
        return {name for name in vars(thing) if not name.startswith("__")}

    module = gs._gradscale
    tree = ast.parse(Path(gs.__file__).with_name("_gradscale.pyi").read_text())
    only_types = {node.name for node in tree.body if isinstance(node, ast.ClassDef) and "TypedDict" in ast.unparse(node)}
    assert set(names(tree.body)) - only_types - {"Replay"} == public(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name not in only_types and node.name != "NoDecisionError":
            said = {name for name in names(node.body) if not name.startswith("__")}
            assert said == public(getattr(module, node.name)), node.name
    assert gs.__version__.count(".") == 2 and set(gs.__all__) <= set(vars(gs))
