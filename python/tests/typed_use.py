"""Use of the whole public interface by a program with types, for type checkers: test_types.py has mypy read it strictly.

It is never run. Each result is given its type, so that a function without types, or with others, is an error.
"""

from __future__ import annotations

from typing import Callable

import gradscale
import numpy as np
import torch
from gradscale import torch as scaled
from gradscale.torch import ddp


def decide(gradient: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
    row: gradscale.Stats = gradscale.observe(gradient, detail="moments")
    total: gradscale.Stats = row + row
    share: float | None = total.flushed_at(exponent_delta=3)
    decision: gradscale.Decision = gradscale.Rule("gs").decide(row)
    halves, seen = gradscale.store(gradient, decision.exponent_delta)
    values, counted = gradscale.store(gradient, format="e4m3")
    scale = gradscale.LossScale("dynamic")
    scale.update(found_inf=seen.overflowed > 0)
    sites = gradscale.Sites("gs", ["conv"])
    outcome: gradscale.Outcome = sites.finish(np.zeros((1, gradscale.ROW_WORDS), np.uint32))
    lines: list[str] = [f"{site['name']} {site['flushed']:.3f}" for site in sites.report()]
    print(share, halves.dtype, values.dtype, counted.format, outcome.kind, scale.exponent, lines, gradscale.cast(gradient, "fp8_e4m3").dtype)
    return decision.exponent_delta


def train(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    scaling: scaled.GradientScaling = scaled.attach(model, "gs", max_consecutive_skips=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    unguard: Callable[[], None] = scaling.guard(optimizer, update=False)
    end: Callable[[], None] = scaling.start_trace("run.jsonl")
    for x, y in batches:
        loss: torch.Tensor = torch.nn.functional.cross_entropy(model(x), y)
        scaling.backward(loss)
        optimizer.step()
        outcome: gradscale.Outcome | None = scaling.update()
        stepped: bool = outcome is None or outcome.stepped
        print(stepped, scaling.steps, scaling.skipped)

    def closure() -> torch.Tensor:
        loss = model(batches[0][0]).sum()
        assert isinstance(loss, torch.Tensor)
        scaling.backward(loss)
        return loss

    last: torch.Tensor = scaling.step(closure, optimizer)
    report: scaled.Report = scaling.report()
    worst: float = max(site["flushed"] for site in report.sites)
    scaling.load_state_dict(scaling.state_dict())
    end()
    unguard()
    scaling.detach()
    print(last, worst, report, scaled.find_non_finite_layer(model, batches[0][0]))


def look(model: torch.nn.Module, batch: torch.Tensor) -> str:
    def loss_fn(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        out = model(batch)
        assert isinstance(out, torch.Tensor)
        return out.sum()

    window: scaled.Window = scaled.measure_window(model, loss_fn, batch, scale=2.0**16)
    place: scaled.ScaleWindow = window.half
    found: scaled.Diagnosis = scaled.diagnose(model, loss_fn, batch)
    found.save("report.html")
    flushed: int = found.layers[0].gradient.casts["fp16"]["1"].flushed if found.layers[0].gradient else 0
    print(place.low, window.bits, flushed)
    return found.recommendation


@scaled.half_backward
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, *grad_outputs: torch.Tensor) -> torch.Tensor:
        return 2 * grad_outputs[0]


def drop_in(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> float:
    scaler = scaled.GradScaler("cpu", init_scale=2.0**10, method="gs")
    product: torch.Tensor = scaler.scale(loss)
    product.backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    scaler.update()
    with_types: scaled.GradientScaling = scaler.scaling
    watching: scaled.Watch = scaled.watch(torch.amp.GradScaler("cpu"))
    watching.stop()
    state = ddp.ScaledFp16State("gs")
    print(with_types.outcome, state.bytes_sent, watching.non_finite)
    return watching.scale
