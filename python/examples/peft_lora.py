"""A LoRA adapter of peft in a plain loop, on a tiny GPT-2 with random weights, which learns to count."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from gradscale.torch import attach  # 1


def main(steps=40):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    adapter = LoraConfig(r=8, target_modules=["c_attn", "c_fc"], modules_to_save=["wte", "lm_head"], fan_in_fan_out=True)
    model = get_peft_model(model, adapter)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    scaling = attach(model)  # 2
    scaling.guard(optimizer, update=True)  # 3
    losses = []
    for step in range(steps):
        start, stride = torch.randint(32, (16, 1)), torch.randint(1, 4, (16, 1))
        numbers = (start + stride * torch.arange(16)) % 32
        loss = model(input_ids=numbers, labels=numbers).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 10 == 9:
            print(f"step {step + 1}: loss {losses[-1]:.4f}, {scaling.outcome}")
    return losses, scaling


if __name__ == "__main__":
    main()
