"""Gradients between ranks: f32, PyTorch's fp16_compress_hook, and halves with an exponent for each parameter.

    python ddp_hook.py            # gloo, 2 and 4 ranks; writes a table
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from gradscale.torch import ddp

HOOKS = ("f32", "fp16_compress_hook", "gradscale")


def network(width):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10))


def worker(rank, ranks, port, width, steps, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    rows = []
    for shift in (0, -24):
        truth = None
        for name in HOOKS:
            model = DistributedDataParallel(network(width))
            state = ddp.ScaledFp16State()
            if name == "gradscale":
                model.register_comm_hook(state, ddp.scaled_fp16_hook)
            elif name == "fp16_compress_hook":
                model.register_comm_hook(None, fp16_compress_hook)
            g = torch.Generator().manual_seed(rank)
            seconds = []
            for _ in range(steps):
                x, y = torch.randn(32, 64, generator=g), torch.randint(10, (32,), generator=g)
                model.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y) * 2.0**shift
                dist.barrier()
                begin = time.perf_counter()
                loss.backward()
                seconds.append(time.perf_counter() - begin)
            found = torch.cat([p.grad.flatten() for p in model.parameters()]).double()
            truth = found if truth is None else truth
            same = [torch.empty_like(found) for _ in range(ranks)]
            dist.all_gather(same, found)
            equal = all(torch.equal(same[0], other) for other in same)
            size = 4 * found.numel() * 2 * (ranks - 1) / ranks
            sent = {"f32": size, "fp16_compress_hook": size / 2, "gradscale": state.bytes_sent / steps}[name]
            error = float((found - truth).norm() / truth.norm())
            rows.append((ranks, shift, name, error, sent, sorted(seconds)[steps // 2], equal))
    if rank == 0:
        out.extend(rows)
    dist.destroy_process_group()


def measure(ranks, width=256, steps=12, port=29561):
    """Rows: ranks, log2 of the loss's factor, hook, error against f32, bytes sent per step and rank, seconds of a backward
    pass, whether all ranks have the same bits. Bytes of the first two are those of a ring."""
    with mp.Manager() as manager:
        out = manager.list()
        mp.spawn(worker, (ranks, port, width, steps, out), nprocs=ranks)
        return list(out)


def main():
    print("| ranks | loss × | hook | error | kB sent | ms | same bits |\n|---|---|---|---|---|---|---|")
    for ranks in map(int, sys.argv[1:] or (2, 4)):
        for ranks, shift, name, error, sent, seconds, equal in measure(ranks, port=29560 + ranks):
            print(f"| {ranks} | 2^{shift} | {name} | {error:.1e} | {sent / 1e3:.0f} | {1e3 * seconds:.1f} | {'yes' if equal else 'no'} |")


if __name__ == "__main__":
    main()
