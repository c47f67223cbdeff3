"""accelerate's loop with gradient accumulation and clipping, on made-up points."""

import torch
from accelerate import Accelerator
from torch import nn

from gradscale.torch import attach  # 1


def main(epochs=4):
    torch.manual_seed(0)
    x = torch.randn(512, 20)
    y = (x[:, :2] > 0).long() @ torch.tensor([1, 2])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    accelerator = Accelerator(mixed_precision="no", gradient_accumulation_steps=2, cpu=not torch.cuda.is_available())
    scaling = attach(model)  # 2
    scaling.guard(optimizer, update=True)  # 3
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16 * epochs)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(epochs):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, {scaling.outcome}")
    return loss.item(), scaling


if __name__ == "__main__":
    main()
