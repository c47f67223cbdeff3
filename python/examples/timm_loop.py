"""timm's training loop with its loss scaler, on a tiny ViT of timm with random weights and made-up images."""

import torch
from timm import create_model
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import model_parameters
from timm.optim import create_optimizer_v2

from gradscale.torch import attach  # 1
from gradscale.torch.timm import NativeScaler


def train_one_epoch(model, loader, optimizer, loss_fn, loss_scaler, clip_grad, accumulated):
    model.train()
    total = 0.0
    for index, (images, target) in enumerate(loader):
        need_update = (index + 1) % accumulated == 0
        loss = loss_fn(model(images), target) / accumulated
        loss_scaler(
            loss, optimizer, clip_grad=clip_grad, clip_mode="norm", parameters=model_parameters(model, exclude_head=False),
            create_graph=False, need_update=need_update,
        )
        if need_update:
            optimizer.zero_grad()
        total += loss.item() * accumulated
    return total / len(loader)


def main(epochs=3):
    torch.manual_seed(0)
    patterns, labels = torch.randn(4, 3, 32, 32), torch.arange(128) % 4
    images = patterns[labels] + torch.randn(128, 3, 32, 32)
    loader = list(zip(images.split(16), labels.split(16)))
    model = create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=48, num_classes=4)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.05)
    scaling = attach(model)  # 2
    loss_scaler = NativeScaler(scaling)  # 3
    losses = [train_one_epoch(model, loader, optimizer, LabelSmoothingCrossEntropy(0.1), loss_scaler, 1.0, 2) for _ in range(epochs)]
    print(f"losses {losses} after {scaling.steps} steps")
    return losses, scaling, loss_scaler


if __name__ == "__main__":
    main()
