"""Experiments of scripts/natural: rows on record, rerun in part, and the example's loop on made-up images."""

import math
import os
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/natural"), str(ROOT / "python/examples")]
import bad_image  # noqa: E402
import grpo_arithmetic  # noqa: E402
import loops  # noqa: E402
import one_bad_image  # noqa: E402
import rare_reward  # noqa: E402
import scale_by_size  # noqa: E402
import one_in_n  # noqa: E402
import record  # noqa: E402
import short_recordings  # noqa: E402

#: Where kernels of another version or processor add in another order, losses of the first epoch agree this far.
LOSS_TOLERANCE = 0.02
#: Scores of so short trainings differ by a few answers of 200 to 2000.
POINTS = 3.0


@pytest.fixture(autouse=True)
def one_thread():
    """The record is of one thread, on which bits depend."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def data_of(experiment):
    folder = os.environ.get("GRADSCALE_DATA")
    if folder is None or not pathlib.Path(folder, experiment.DATA).is_dir():
        pytest.skip(f"GRADSCALE_DATA names no folder with {experiment.DATA}")
    return pathlib.Path(folder)


def on_record(name, *methods):
    """Returns the recorded rows of these methods with the first seed."""
    return sorted({row["method"] for row in record.read_rows() if (row["experiment"], row["seed"]) == (name, "0") and row["method"] in methods})


def compare(name, method, row):
    """The first row of a run with that on record. Scale, skips and events are always the same."""
    found = [one for one in record.read_rows() if (one["experiment"], one["method"], one["seed"], one["step"]) == (name, method, "0", str(row["step"]))]
    assert len(found) == 1, f"no row on record: {name} {method}"
    recorded, now = found[0], record.formatted({**row, **record.versions()})
    for key in ("log2_scale", "skipped", "events"):
        assert now[key] == recorded[key], key
    if all(now[key] == recorded[key] for key in ("torch", "processor")):
        assert (now["score"], now["loss"]) == (recorded["score"], recorded["loss"])
    else:
        assert float(now["score"]) == pytest.approx(float(recorded["score"]), abs=POINTS)
        assert not recorded["loss"] or float(now["loss"]) == pytest.approx(float(recorded["loss"]), rel=LOSS_TOLERANCE)


@pytest.mark.parametrize("method", on_record("bad_image", "torch.amp", "attach"))
def test_first_epoch_with_a_bad_image(method):
    compare("bad_image", method, next(bad_image.train(method, 0, bad_image.load(data_of(bad_image)))))


def test_first_steps_with_short_recordings():
    loaded = short_recordings.load(data_of(short_recordings))
    assert [short_recordings.too_short(part) for part in loaded] == [16, 1]
    for method in ("torch.amp", "attach"):
        compare("short_recordings", method, next(short_recordings.train(method, 0, loaded)))


@pytest.mark.parametrize("method", on_record("rare_reward", "f32", "torch.amp"))
def test_first_updates_with_a_rare_reward(method):
    # A GradScaler counts steps with zero gradients as finite: after 2000 of them the scale doubles.
    row = next(rare_reward.train(method, 0, None))
    assert row["log2_scale"] == 17
    compare("rare_reward", method, row)


def made_up_images(count, seed):
    """Images of ten classes, each a pattern and noise."""
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 3072, generator=torch.Generator().manual_seed(0))
    classes = torch.randint(10, (count,), generator=draw)
    return patterns[classes] + torch.randn(count, 3072, generator=draw), classes


def test_a_bad_image_takes_a_bit_an_epoch_from_one_scale_alone(monkeypatch):
    monkeypatch.setattr(one_bad_image, "BATCH", 32)
    # Twelve whole batches, so that the broken image is in one of each epoch.
    data = made_up_images(12 * 32, 1), made_up_images(64, 2)
    data[0][0][17] = math.nan
    last = {way: list(one_bad_image.train(way, 0, data, 3))[-1] for way in one_bad_image.WAYS}
    assert [last[way][3] for way in one_bad_image.WAYS] == [3, 3, 3]
    assert last["torch.amp"][2] == last["f32"][2] == 13.0
    for way, (accuracy, loss, _, _) in last.items():
        assert accuracy > 90 and loss < 1, (way, accuracy, loss)


@pytest.mark.parametrize(("method", "scale"), [("torch.amp", 2.0**-4), ("floor:1", 1.0), ("fixed:128", 128.0)])
def test_what_is_done_to_a_scaler(method, scale):
    # Twenty steps that are not finite; then one that is.
    model = torch.nn.Linear(4, 2)
    loop = loops.Loop(method, model, torch.optim.SGD(model.parameters(), 0.1))
    before = model.weight.detach().clone()
    for _ in range(20):
        stepped, loss = loop.step(lambda: loop.forward(torch.full((3, 4), math.nan)).sum())
        assert not stepped and math.isnan(loss)
    assert 2.0**loop.log2_scale == scale and loop.skipped == 20
    assert torch.equal(model.weight, before)
    stepped, _ = loop.step(lambda: loop.forward(torch.ones(3, 4)).sum())
    assert stepped and not torch.equal(model.weight, before)


@pytest.mark.parametrize("at", [0, 6])
def test_loss_scales_that_fit_by_reduction(at):
    row = scale_by_size.read_rows()[at]
    now = scale_by_size.row_of(scale_by_size.settings()[at])
    assert now["fits"] == row["fits"]
    assert float(now["error_at_128"]) == pytest.approx(float(row["error_at_128"]), abs=1e-4)
    # A sum over 24 × 32 pixels is 768 times the mean.
    assert int(scale_by_size.read_rows()[6]["fits"]) == int(scale_by_size.read_rows()[0]["fits"]) - 10


@pytest.mark.parametrize("one_in", one_in_n.RARITIES[:2])
def test_dropped_batches_by_rarity(one_in):
    rows = [row for row in one_in_n.read_rows() if row["one_in"] == str(one_in)]
    assert rows
    for row in rows:
        assert one_in_n.simulate(one_in, int(row["seed"])) == (int(row["dropped"]), int(row["steps"]))


def test_the_scale_of_that_simulation_is_that_of_a_grad_scaler():
    # The whole path of GradScaler: overflow of a gradient in f32, unscale, step, update. Grows after four clean steps.
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], 0.0)
    scaler, scale = torch.amp.GradScaler("cpu", growth_interval=4), one_in_n.Scale(interval=4)
    assert scale.value == scaler.get_scale() == one_in_n.INITIAL
    taken = []
    for step in range(120):
        factor = float("inf") if step % 11 == 0 or step % 29 < 2 else 1.0
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scale.update(factor != 1.0)
        assert scale.value == scaler.get_scale(), step
        taken.append(scale.value)
    assert min(taken) < one_in_n.INITIAL < max(taken)


def half_right(forward, asked, draw=None):
    """Problems with right answers, except for every second one."""
    sums = asked[:, [0, 2]].sum(1) * 10 + asked[:, [1, 3]].sum(1)
    answers = torch.stack([sums % 10, sums // 10 % 10, sums // 100], 1)
    answers[::2, 0] = grpo_arithmetic.TOKENS - 1
    return torch.cat([asked, answers], 1)


def test_what_grpo_counts_as_dropped(monkeypatch):
    monkeypatch.setattr(grpo_arithmetic, "WARM_STEPS", 1)
    monkeypatch.setattr(grpo_arithmetic, "answered", half_right)
    # From this scale all steps of a short run overflow.
    monkeypatch.setitem(grpo_arithmetic.SCALERS, "torch.amp", {"init_scale": 2.0**120})
    last = {way: list(grpo_arithmetic.train(way, 0, updates=2, every=1))[-1] for way in grpo_arithmetic.WAYS}
    steps = 2 * grpo_arithmetic.EPOCHS
    for way, row in last.items():
        assert (row["update"], row["return"], row["likeliest"], row["empty"]) == (2, 50.0, 50.0, 0), way
        skipped = steps if way == "torch.amp" else 0
        assert (row["skipped"], row["dropped"]) == (skipped, 100.0 * skipped / steps), way
    assert [row["log2_scale"] for row in last.values()] == [16.0, 120.0 - steps, 16.0, None, None]


def test_grpo_without_a_right_answer(monkeypatch):
    # A model that has seen nothing: no advantage, and no gradient that could be dropped.
    monkeypatch.setattr(grpo_arithmetic, "WARM_STEPS", 0)
    monkeypatch.setattr(grpo_arithmetic, "answered", lambda forward, asked, draw=None: torch.cat([asked, torch.full((len(asked), 3), 10)], 1))
    row, = grpo_arithmetic.train("attach", 0, updates=1)
    assert (row["return"], row["dropped"], row["skipped"], row["empty"]) == (0.0, 0.0, 0, 1)


def test_an_experiment_of_the_gpu_bundle(capsys, monkeypatch):
    import gpu

    monkeypatch.setattr(sys, "argv", ["gpu.py", "rare_reward", "--device", "cpu", "--small", "--seeds", "0", "1"])
    gpu.main()
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| what | step | score |") and rule == "|" + "---|" * 7
    # A rehearsal has one seed.
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {method}, seed 0", "3"] for method in gpu.METHODS]
    # Without a GPU the phase says so, and no run begins after its time.
    monkeypatch.setattr(sys, "argv", ["gpu.py", "rare_reward", "--seconds", "-1"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="not here: PyTorch sees no GPU"):
        gpu.main()
    monkeypatch.setattr(sys, "argv", ["gpu.py", "rare_reward", "--device", "cpu", "--seconds", "-1", "--seeds", "7"])
    gpu.main()
    assert capsys.readouterr().out.splitlines()[2:] == [f"not run for lack of time: {method}, seed 7" for method in gpu.METHODS]


def test_a_method_that_does_not_exist():
    model = torch.nn.Linear(4, 2)
    with pytest.raises(ValueError, match="method amp: one of f32, "):
        loops.Loop("amp", model, torch.optim.SGD(model.parameters(), 0.1))


def test_distances_of_words():
    words = [("zero", "zero", 0), ("", "one", 3), ("two", "", 3), ("three", "tree", 1), ("four", "five", 3), ("seven", "eleven", 2)]
    for one, other, expected in words:
        assert short_recordings.distance(one, other) == short_recordings.distance(other, one) == expected
