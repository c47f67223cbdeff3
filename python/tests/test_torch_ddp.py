"""Gradients of several ranks: scaled within each, and on their way as halves."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from gradscale.torch import attach  # noqa: E402
from torch_models import batches, cross_entropy, error, network, run_ranks  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")


def worker(rank, ranks, port, out):
    from torch.nn.parallel import DistributedDataParallel

    from gradscale.torch import ddp

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    data = list(batches("mlp", ranks))
    x, y = data[rank]
    results = {}
    # First the hook alone, compared with the sum in f32; then attached models: half inside each rank, and half between
    # ranks.
    for case in ("plain", "hook", "attached"):
        model = network("mlp")
        model[0].bias.requires_grad_(False)
        gs = attach(model) if case == "attached" else None
        parallel = DistributedDataParallel(model)
        state = ddp.ScaledFp16State()
        if case != "plain":
            parallel.register_comm_hook(state, ddp.scaled_fp16_hook)
        sent = 1 << 60
        for step in range(12):
            model.zero_grad()
            before = state.bytes_sent
            (cross_entropy(parallel(x), y) * 2.0**-30).backward()
            sent = min(sent, state.bytes_sent - before)
            if gs:
                assert gs.update().stepped
        results[case] = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        if case == "hook":
            results["sent"] = sent
            flat = torch.cat([g.flatten() for g in results[case]])
            both = [torch.empty_like(flat) for _ in range(ranks)]
            dist.all_gather(both, flat)
            assert torch.equal(both[0], both[1])
    if rank == 0:
        out.update(results)
    dist.destroy_process_group()


def run(function, port):
    """Runs a function on two ranks, and returns the values that they put into a dictionary."""
    with mp.Manager() as manager:
        out = manager.dict()
        run_ranks(function, 2, port + os.getpid() % 400, out)
        return dict(out)


@pytest.fixture(scope="module")
def results():
    return run(worker, 29500)


def test_halves_between_ranks_are_the_mean(results):
    assert error(results["hook"], results["plain"]) < 4e-4


def test_half_of_the_bytes(results):
    count = sum(g.numel() for g in results["plain"])
    rows = 2 * 5 * 64 + 64
    assert results["sent"] <= 2 * 2 * (count + 2) // 2 + rows


def test_half_in_ranks_and_between_them(results):
    """Compares with a single process that has both batches."""
    model = network("mlp")
    model[0].bias.requires_grad_(False)
    gs = attach(model)
    for x, y in batches("mlp", 2):
        (cross_entropy(model(x), y) / 2 * 2.0**-30).backward()
    assert gs.update().stepped
    assert error(results["attached"], [p.grad for p in model.parameters() if p.grad is not None]) < 1e-3


def closures(rank, ranks, port, out):
    """Steps that are repeated, skipped or refused, where the reason is on one rank alone."""
    from torch.nn.parallel import DistributedDataParallel

    from gradscale.torch import ddp

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    data = list(batches("mlp", 12 * ranks))[rank::ranks]
    # In step 4 the loss of rank 1 exceeds its exponents, in step 6 that of rank 0. In step 8 rank 1 has a NaN, which no
    # repeat cures, while rank 0 overflows.
    factors = {(4, 1): 2.0**30, (6, 0): 2.0**34, (8, 1): float("nan"), (8, 0): 2.0**40}
    for case in ("f32", "attached", "hook", "8 bits"):
        model = network("mlp")
        gs = attach(model, "gs:grad=e5m2,act=e4m3,weight=e4m3,products=fp8" if case == "8 bits" else "gs") if case != "f32" else None
        parallel = DistributedDataParallel(model)
        if case == "hook":
            parallel.register_comm_hook(ddp.ScaledFp16State(), ddp.scaled_fp16_hook)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        runs = []
        for step, (x, y) in enumerate(data):
            runs.append(0)

            def closure():
                runs[-1] += 1
                optimizer.zero_grad()
                loss = cross_entropy(parallel(x), y) * factors.get((step, rank), 1.0)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                return loss

            if gs:
                gs.step(closure, optimizer)
            elif step != 8:
                closure()
                optimizer.step()
        weights = [p.detach() for p in model.parameters()]
        out[case, rank] = weights, runs, gs and (gs.steps, gs.skipped, gs.repeats)
    # Each on its own: one has a NaN, which the other knows nothing of.
    model = network("mlp")
    gs, optimizer = attach(model), torch.optim.SGD(model.parameters(), 0.05)
    x, y = data[0]
    before = [p.detach().clone() for p in model.parameters()]

    def alone():
        loss = cross_entropy(model(x), y) * (float("nan") if rank else 1.0)
        loss.backward()
        return loss

    for closure in (alone, lambda: alone() if rank else torch.zeros(1)):
        try:
            gs.step(closure, optimizer)
        except RuntimeError as error:
            out[closure is alone, rank] = str(error)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def stepped():
    return run(closures, 29900)


@pytest.mark.parametrize("case", ["attached", "hook", "8 bits"])
def test_all_ranks_repeat_where_one_has_to(stepped, case):
    (weights, runs, counts), (others, runs_there, counts_there) = stepped[case, 0], stepped[case, 1]
    assert runs == runs_there and counts == counts_there
    assert runs == [1, 1, 1, 1, 2, 1, 2, 1, 1, 1, 1, 1] and counts == (11, 1, 2)
    assert all(torch.equal(a, b) for a, b in zip(weights, others))
    # The hook's exponents stay below both kinds of batches for a while, so it rounds small ones more coarsely.
    assert error(weights, stepped["f32", 0][0]) < {"attached": 2e-3, "hook": 6e-3, "8 bits": 2e-2}[case]


def shards(rank, ranks, port, out):
    """Parameters of which each rank has a part."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    x, y = list(batches("mlp", ranks))[rank]
    mesh = torch.distributed.init_device_mesh("cpu", (ranks,))
    model = network("mlp")
    gs = attach(model)
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    gs.guard(optimizer)
    # In the second step one rank has a NaN, so no rank steps.
    for factor in (2.0**-30, float("nan") if rank else 2.0**-30):
        before = [p.full_tensor() for p in model.parameters()]
        optimizer.zero_grad()
        (cross_entropy(model(x), y) * factor).backward()
        gradients = [p.grad.full_tensor() for p in model.parameters()]
        optimizer.step()
        gs.update()
        moved = not all(torch.equal(p.full_tensor(), q) for p, q in zip(model.parameters(), before))
        out["moved", rank, gs.steps + gs.skipped] = moved
        if rank == 0 and moved:
            out["gradients"], out["names"] = gradients, gs.sites.names
    flat = network("mlp")
    attach(flat)
    flat = FullyShardedDataParallel(flat, device_id=torch.device("cpu"))
    try:
        cross_entropy(flat(x), y).backward()
    except TypeError as error:
        out["flat"] = str(error)
    dist.destroy_process_group()


@pytest.mark.skipif(not os.environ.get("GRADSCALE_ALL"), reason="takes a while: python/test.sh --all")
def test_sharded_parameters():
    """``fully_shard``: the gradients of all ranks, and one decision for all of them; one flat parameter is refused."""
    found = run(shards, 30300)
    model = network("mlp")
    gs = attach(model)
    for x, y in batches("mlp", 2):
        (cross_entropy(model(x), y) / 2 * 2.0**-30).backward()
    assert error(found["gradients"], [p.grad for p in model.parameters()]) < 1e-3
    assert found["names"] == gs.sites.names
    assert [found["moved", rank, step] for rank in (0, 1) for step in (1, 2)] == [True, False] * 2
    assert "use torch.distributed.fsdp.fully_shard" in found["flat"]


def test_ranks_that_disagree_say_so(stepped):
    for rank in (0, 1):
        assert "finite on rank 0 and not finite on the other ranks; no rank has stepped" in stepped[True, rank]
        assert "on rank 0 the closure of step() called no backward" in stepped[False, rank]
