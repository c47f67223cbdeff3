"""A loop as recipes of language models have it, such as torchtune's: the sum of losses of several micro-batches is divided by
the number of tokens before the step, then gradients are clipped. On a tiny decoder, which learns to count."""

import torch
from torch import nn

from gradscale.torch import attach  # 1


class Decoder(nn.Module):
    def __init__(self, vocabulary=32, width=32):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(0.02 * torch.randn(16, width))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(2))
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        h = self.token(tokens) + self.place[: tokens.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=h.device)
        for layer in self.layers:
            h = layer(h, mask, is_causal=True)
        return self.output(h)


def micro_batches():
    while True:
        start, stride = torch.randint(32, (8, 1)), torch.randint(1, 4, (8, 1))
        tokens = (start + stride * torch.arange(17)) % 32
        yield {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}


def main(steps=40, accumulated=2):
    torch.manual_seed(0)
    model = Decoder()
    loss_fn = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaling = attach(model)  # 2
    scaling.guard(optimizer, update=True)  # 3
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 5)
    running_loss = num_tokens = 0
    losses, data = [], micro_batches()
    for micro in range(steps * accumulated):
        batch = next(data)
        current_tokens = (batch["labels"] != loss_fn.ignore_index).sum()
        num_tokens += current_tokens
        loss = loss_fn(model(batch["tokens"]).flatten(0, 1), batch["labels"].flatten())
        running_loss += loss.detach()
        loss.backward()
        if (micro + 1) % accumulated == 0:
            for parameter in model.parameters():
                parameter.grad /= num_tokens
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
            losses.append((running_loss / num_tokens).item())
            running_loss = num_tokens = 0
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {scaling.steps} steps")
    return losses, scaling


if __name__ == "__main__":
    main()
