"""Gradients of several ranks: scaled within each, and on their way as halves."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from torch_models import batches, cross_entropy, error, network  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")


def worker(rank, ranks, port, out):
    from torch.nn.parallel import DistributedDataParallel

    from gradscale.torch import attach, ddp

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    data = list(batches("mlp", ranks))
    x, y = data[rank]
    results = {}
    # A hook alone, beside the sum in f32; then all of it: half inside each rank, half between them.
    for case in ("plain", "hook", "attached"):
        model = network("mlp")
        model[0].bias.requires_grad_(False)
        gs = attach(model) if case == "attached" else None
        parallel = DistributedDataParallel(model)
        state = ddp.HalfGradients()
        if case != "plain":
            parallel.register_comm_hook(state, ddp.hook)
        sent = 1 << 60
        for step in range(12):
            model.zero_grad()
            before = state.sent
            (cross_entropy(parallel(x), y) * 2.0**-30).backward()
            sent = min(sent, state.sent - before)
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


@pytest.fixture(scope="module")
def results():
    with mp.Manager() as manager:
        out = manager.dict()
        mp.spawn(worker, (2, 29500 + os.getpid() % 400, out), nprocs=2)
        return dict(out)


def test_halves_between_ranks_are_the_mean(results):
    assert error(results["hook"], results["plain"]) < 4e-4


def test_half_of_the_bytes(results):
    count = sum(g.numel() for g in results["plain"])
    rows = 2 * 5 * 64 + 64
    assert results["sent"] <= 2 * 2 * (count + 2) // 2 + rows


def test_half_in_ranks_and_between_them(results):
    """As one process has them, of both batches."""
    from gradscale.torch import attach

    model = network("mlp")
    model[0].bias.requires_grad_(False)
    gs = attach(model)
    for x, y in batches("mlp", 2):
        (cross_entropy(model(x), y) / 2 * 2.0**-30).backward()
    assert gs.update().stepped
    assert error(results["attached"], [p.grad for p in model.parameters() if p.grad is not None]) < 1e-3
