"""REINFORCE on a combination lock: five digits of eight, reward 100 if all are right, else nothing.

The first policy opens it in about one update of 4096. Until then gradients are exactly zero, and a GradScaler counts such
steps as clean. Needs no data.
"""
import loops
import torch
from torch import nn

DIGITS, CHOICES, EPISODES, REWARD = 5, 8, 8, 100.0
UPDATES, SOLVED = 40_000, 0.5
# An update that is recorded too, for the test that runs it again: the scale has grown once by then.
EARLY = 2001


def load(data):
    return None


def train(method, seed, loaded, device="cpu", updates=UPDATES):
    """Yields rows of the record: an early one, and the update after which the lock opens in half of all episodes. The score is
    the chance in per cent, events are rewarded batches, and skips are those of them that were dropped."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(DIGITS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CHOICES)).to(device)
    loop = loops.Loop(method, net, torch.optim.Adam(net.parameters(), 3e-4))
    draw, places = torch.Generator().manual_seed(seed + 1000), torch.eye(DIGITS)
    code = torch.randint(CHOICES, (DIGITS,), generator=draw)
    rewarded = dropped = 0
    likely = None
    row_at = lambda update: {
        "step": update, "score": 100 * chance, "loss": None, "log2_scale": loop.log2_scale, "skipped": dropped, "events": rewarded,
    }
    for update in range(1, updates + 1):
        if likely is None:
            with torch.no_grad():
                # Drawn on the CPU, so that all devices draw the same numbers.
                likely = loop.forward(places).softmax(-1).cpu()
            chance = likely[torch.arange(DIGITS), code].prod().item()
            if chance > SOLVED:
                break
        digits = torch.multinomial(likely, EPISODES, replacement=True, generator=draw).t()
        opened = (digits == code).all(1)
        wins = bool(opened.any())

        def loss_of():
            chances = loop.forward(places).log_softmax(-1)
            return -(REWARD * opened.to(chances.device) * chances[torch.arange(DIGITS), digits].sum(1)).mean()

        stepped, _ = loop.step(loss_of)
        rewarded += wins
        dropped += wins and not stepped
        # Zero gradients before the first update that was made leave weights and optimizer as they were.
        if rewarded > dropped:
            likely = None
        if update == EARLY:
            yield row_at(update)
    yield row_at(update)
