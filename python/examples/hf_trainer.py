"""Hugging Face's Trainer on a tiny GPT-2 with random weights, which learns to count."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gradscale.torch import attach  # 1
from gradscale.torch.huggingface import GradientScalingCallback


class Counting(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        numbers = (torch.arange(16) * (1 + i % 3) + i) % 32
        return {"input_ids": numbers, "labels": numbers}


def main(steps=60):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    scaling = attach(model)  # 2
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=16, learning_rate=3e-3, logging_steps=20, save_strategy="no",
            report_to=[], use_cpu=not torch.cuda.is_available(), disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=Counting(), callbacks=[GradientScalingCallback(scaling)])  # 3
        result = trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"losses {losses} after {scaling.steps} steps")
    print(scaling.report())
    return losses, scaling


if __name__ == "__main__":
    main()
