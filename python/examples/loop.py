"""A plain loop on made-up digits: a line each for gradscale is marked, and there are three."""

import torch
from torch import nn

from gradscale.torch import attach  # 1


def main(steps=200, seed=0):
    torch.manual_seed(seed)
    centres = torch.randn(10, 1, 28, 28)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 6 * 6, 10),
    )
    scaling = attach(model)  # 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaling.guard(optimizer)
    for step in range(steps):
        y = torch.randint(10, (32,))
        x = 0.1 * centres[y] + torch.randn(32, 1, 28, 28)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scaling.update()  # 3
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}, {scaling.outcome}")
    print(scaling.report())
    return loss.item()


if __name__ == "__main__":
    main()
