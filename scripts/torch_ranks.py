#!/usr/bin/env python3
"""Time of a training step of SegNetBasic by PyTorch's DistributedDataParallel on gloo, for `ranks_speed.py`.

usage: torch_ranks.py WIDTH BATCH HEIGHT WIDTH_OF_IMAGE STEPS plain|fp16, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
"""
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch_segnet import SegNet


def main():
    width, batch, h, w, steps = map(int, sys.argv[1:6])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(SegNet(width, 11))
    if sys.argv[6] == "fp16":
        net.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-4)
    loss = nn.CrossEntropyLoss()
    images, labels = 255 * torch.rand(batch, 3, h, w), torch.randint(0, 11, (batch, h, w))
    times = []
    for _ in range(steps):
        distributed.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(net(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    if os.environ["RANK"] == "0":
        # The first steps allocate and connect.
        times = sorted(times[2:])
        print(times[len(times) // 2])
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
