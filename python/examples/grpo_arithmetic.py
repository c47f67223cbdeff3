"""GRPO on two-digit additions: f32, torch.amp with two settings of its scale, and gradscale's attach, in the same loop.

    OMP_NUM_THREADS=1 python grpo_arithmetic.py [UPDATES [SEED …]]

A small decoder first sees a few solved additions, in f32 and the same for all ways, so that about two answers in a hundred are
right. Then it gets a reward of 1 for a right answer and nothing else. Groups without a right answer have zero advantages. So
many batches have gradients that are exactly zero, which a GradScaler counts as clean steps.
"""

import math
import sys

import torch
from torch import nn

from gradscale.torch import attach

#: Arguments of each way's GradScaler. TRL 1.16.0 has the defaults, which accelerate 1.15.0 passes: 2^16, doubled after 2000 steps.
#: verl has growth_interval=400 for actors in FP16 (its pull request 4036, November 2025), and the other defaults.
SCALERS = {"f32": {}, "torch.amp": {}, "growth:400": {"growth_interval": 400}}
#: Both have a scale for every gradient. By `attach` the optimizer is guarded, and a batch that overflows is skipped. By
#: `attach:step` such a batch is repeated.
ATTACHED = ("attach", "attach:step")
WAYS = (*SCALERS, *ATTACHED)
#: Tokens: ten digits, and "=" at 10. A problem is "abcd=", its answer three digits, the last digit first.
TOKENS, PROBLEM, ANSWER = 11, 5, 3
#: Problems of a batch, answers to each, and the limit of the ratio of probabilities.
PROBLEMS, GROUP, CLIP = 8, 8, 0.2
#: Steps of the optimizer for each batch of answers. In the second the ratio is not 1 any more.
EPOCHS = 2
#: Chosen in f32 with seed 0 alone, before any other way ran: after 250 steps f32 learned nothing in 600 updates, after 400 two of
#: five answers were right at once, after 320 two of a hundred.
WARM_STEPS, UPDATES, RATE = 320, 1000, 3e-4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Decoder(nn.Module):
    """A decoder of two blocks; tokens [batch, length] to logits [batch, length, TOKENS]."""

    def __init__(self, width=64, heads=4, blocks=2):
        super().__init__()
        self.token, self.place = nn.Embedding(TOKENS, width), nn.Embedding(PROBLEM + ANSWER, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place.weight[: tokens.shape[1]])))


def problems(count, draw):
    """Problems [count, PROBLEM] and their answers [count, ANSWER]."""
    numbers = torch.randint(100, (count, 2), generator=draw)
    sums = numbers.sum(1)
    asked = torch.stack([numbers[:, 0] // 10, numbers[:, 0] % 10, numbers[:, 1] // 10, numbers[:, 1] % 10, torch.full((count,), 10)], 1)
    return asked, torch.stack([sums % 10, sums // 10 % 10, sums // 100], 1)


def log_likelihoods(logits, tokens):
    """Logarithms of the probabilities of the answers' tokens, [batch, ANSWER]."""
    return logits[:, PROBLEM - 1 : -1].float().log_softmax(-1).gather(-1, tokens[:, PROBLEM:, None]).squeeze(-1)


def warmed(seed):
    """A decoder after its few steps on solved additions, in f32."""
    torch.manual_seed(seed)
    model, draw = Decoder(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(WARM_STEPS):
        tokens = torch.cat(problems(64, draw), 1)
        optimizer.zero_grad()
        (-log_likelihoods(model(tokens), tokens).mean()).backward()
        optimizer.step()
    return model


def answered(forward, asked, draw=None):
    """Problems with answers: drawn from the model's probabilities, or the likeliest."""
    tokens = asked
    with torch.no_grad():
        for _ in range(ANSWER):
            chances = forward(tokens)[:, -1].float().softmax(-1)
            token = chances.argmax(-1, keepdim=True) if draw is None else torch.multinomial(chances, 1, generator=draw)
            tokens = torch.cat([tokens, token], 1)
    return tokens


class Counts:
    """Sums over updates: rewards, |advantages|, those of steps that were skipped, and batches without any."""

    def __init__(self):
        self.reward = self.mass = self.dropped = 0.0
        self.answers = self.skipped = self.empty = 0


def train(way, seed, updates=UPDATES, every=250):
    """Yields, after every some updates, a row: the share in per cent of right answers among those drawn so far (the return)
    and among the likeliest answers to 1000 other problems, the share in per cent of dropped |advantage|, log2 of the scale,
    steps skipped, and batches without an advantage."""
    model = warmed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.0)
    draw, counts = torch.Generator().manual_seed(1000 + seed), Counts()
    test, solutions = problems(1000, torch.Generator().manual_seed(2000 + seed))
    if way in ATTACHED:
        scaling = attach(model)
        if way == "attach":
            scaling.guard(optimizer)
    else:
        scaler = torch.amp.GradScaler("cpu", **SCALERS[way])  # In f32 too, because it skips steps that are not finite.

    def forward(tokens):
        with torch.autocast("cpu", torch.float16, enabled=way in ("torch.amp", "growth:400")):
            return model(tokens)

    for update in range(1, updates + 1):
        asked, right = (part.repeat_interleave(GROUP, 0) for part in problems(PROBLEMS, draw))
        tokens = answered(forward, asked, draw)
        rewards = (tokens[:, PROBLEM:] == right).all(1).float()
        groups = rewards.view(PROBLEMS, GROUP)
        advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        mass = advantages.abs().sum().item()
        counts.reward, counts.answers, counts.empty = counts.reward + rewards.sum().item(), counts.answers + len(rewards), counts.empty + (mass == 0)
        with torch.no_grad():
            before = log_likelihoods(forward(tokens), tokens)

        def loss_of():
            optimizer.zero_grad()
            ratio = (log_likelihoods(forward(tokens), tokens) - before).exp()
            return -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()

        def gradients():
            loss = loss_of()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        for _ in range(EPOCHS):
            if way == "attach":
                gradients()
                optimizer.step()
                is_skipped = not scaling.update().stepped
            elif way == "attach:step":
                scaling.step(gradients, optimizer)
                is_skipped = not scaling.outcome.stepped
            else:
                scale = scaler.get_scale()
                scaler.scale(loss_of()).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                is_skipped = scaler.get_scale() < scale
            counts.mass, counts.dropped = counts.mass + mass, counts.dropped + mass * is_skipped
            counts.skipped += is_skipped
        if update % every == 0 or update == updates:
            likeliest = (answered(forward, test)[:, PROBLEM:] == solutions).all(1).float().mean().item()
            yield {
                "update": update, "return": 100 * counts.reward / counts.answers, "likeliest": 100 * likeliest,
                "dropped": 100 * counts.dropped / max(counts.mass, 1e-30), "log2_scale": None if way in ATTACHED else math.log2(scaler.get_scale()),
                "skipped": counts.skipped, "empty": counts.empty,
            }


def main():
    torch.set_num_threads(1)
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else UPDATES
    print("| seed | way | return % | likeliest answers right % | dropped reward mass % | log2 of the scale | steps skipped | empty batches |")
    print("|" + "---|" * 8)
    for seed in map(int, sys.argv[2:] or ["0"]):
        for way in WAYS:
            row = list(train(way, seed, updates))[-1]
            cells = f"{row['return']:.2f} | {row['likeliest']:.1f} | {row['dropped']:.2f} | {row['log2_scale']} | {row['skipped']} | {row['empty']}"
            print(f"| {seed} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
