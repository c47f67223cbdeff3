"""Phase torch-trl of the GPU bundle: TRL's SFTTrainer with an adapter of peft under gradscale, and a plain loop with a network of
transformers in float32 and under gradscale. The row of a training has its first and last loss, its time and its peak of memory.

usage: trl_phase.py [--device cpu] [--small]

Without TRL the plain loop alone trains. Packages that the machine lacks are taken from `packages`,
if the bundle was built with --packages; those of the machine come first, since they fit its PyTorch.
"""
import argparse
import importlib
import importlib.util
import pathlib
import sys
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
FOR_TRL = ("trl", "peft", "datasets", "transformers", "accelerate", "tokenizers")
# A training must lower its loss by that much: as in the test of the example.
MIN_FALL = 0.3


def missing(names):
    """Returns the packages that cannot be imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def has_gpu():
    import torch

    return torch.cuda.is_available()


def plain_loop(steps, device, is_scaled):
    """Trains a tiny GPT-2 of transformers to count, without a trainer; returns the losses of all steps and the scaling."""
    import torch
    from gradscale.torch import attach
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    words = GPT2Config(vocab_size=33, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=32, eos_token_id=32)
    model = GPT2LMHeadModel(words).to(device)
    scaling = attach(model) if is_scaled else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if scaling:
        scaling.guard(optimizer)
    rows = torch.tensor([[(k * (1 + i % 3) + i) % 32 for k in range(16)] for i in range(512)], device=device)
    losses = []
    for step in range(steps):
        batch = rows[16 * step % 512 :][:16]
        optimizer.zero_grad()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if scaling:
            scaling.update()
    return losses, scaling


def train(name, run, device):
    """Runs a training, prints its row, and returns whether it has learned."""
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.monotonic()
    losses, scaling = run()
    if device == "cuda":
        torch.cuda.synchronize()
    memory = f"{torch.cuda.max_memory_allocated() / 2**20:.0f} MiB" if device == "cuda" else ""
    sites, skipped = (len(scaling.sites), scaling.skipped) if scaling else ("", "")
    print(f"| {name} | {losses[0]:.4f} | {losses[-1]:.4f} | {time.monotonic() - start:.1f} s | {memory} | {sites} | {skipped} |", flush=True)
    return losses[-1] < losses[0] - MIN_FALL and not skipped


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="fewer steps")
    options = parser.parse_args()
    sys.path.append(str(HERE / "packages"))
    steps = 20 if options.small else 60
    lacking = missing(FOR_TRL)
    if "transformers" in lacking:
        print("not here: no Python with transformers, so nothing was trained; torch-train trains what needs PyTorch alone")
        return
    if options.device == "cuda" and not has_gpu():
        print("not here: PyTorch sees no GPU")
        return
    if lacking:
        print(f"not here: no Python with {', '.join(lacking)}, so only a plain loop trained a GPT-2 of transformers")
    warnings.simplefilter("ignore")
    print("| training | first loss | last loss | time | memory | sites | skipped |\n|---|---|---|---|---|---|---|")
    ways = {
        "plain loop, float32": lambda: plain_loop(steps, options.device, False),
        "plain loop, gradscale": lambda: plain_loop(steps, options.device, True),
    }
    if not lacking:
        ways["SFTTrainer, gradscale"] = lambda: importlib.import_module("trl_sft").main(steps)
    failed = [name for name, run in ways.items() if not train(name, run, options.device)]
    if failed:
        sys.exit(f"FAILED: {', '.join(failed)}: the loss fell by less than {MIN_FALL}, or a step was skipped")


if __name__ == "__main__":
    main()
