"""Report of a training's sites, for people to read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from .. import _gradscale
    from .scaling import GradientScaling


class Report:
    """Report of the sites, in the order of the backward pass, and of the outcomes of steps.

    `sites` is a list of dictionaries: name, exponent, share of the non-zero values that was flushed, share that is
    subnormal, log2 of the largest value, number of overflows, and the constraint that limits the exponent. `non_finite`
    counts, for each site where values were not finite first, how often that was an overflow, which another exponent
    cures, and how often ±∞ or NaN arrived there from the forward pass.

    `activations` is a list of the same dictionaries for results of the forward pass, which is empty until one of them has
    overflowed, and `without_exponents` are the operators whose results have none, because they exist only for halves.
    `weights` is one for the copies of weights in 8 bits, where the method has such. The key `format` is that of the stores.

    With ``products=fp8``, `fp8_products` has the matrix products of the last forward pass by the names of their layers, and
    None if one was computed in FP8, otherwise the reason. `fp8_gradients` counts those of all backward passes by reason.
    """

    def __init__(self, scaling: GradientScaling) -> None:
        self.method: str = scaling.method
        self.steps: int = scaling.steps
        self.repeats: int = scaling.repeats
        self.skipped: int = scaling.skipped
        self.outcome: _gradscale.Outcome | None = scaling.outcome
        self.non_finite: dict[str, dict[str, int]] = {name: dict(kinds) for name, kinds in scaling._blamed.items()}
        self.sites: list[_gradscale.SiteReport] = scaling.sites.report()
        self.activations: list[_gradscale.SiteReport] = scaling.sites.report("forward")
        self.weights: list[_gradscale.SiteReport] = scaling.sites.report("weight")
        self.without_exponents: list[str] = sorted(scaling._without_exponents)
        self.fp8_products: dict[str, str | None] = dict(scaling._fp8_products)
        self.fp8_gradients: dict[str | None, int] = dict(scaling._fp8_gradients)
        self._forward = scaling._describe_forward()

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {len(self.sites)} sites, {self.steps} steps, {self.repeats} repeats, {self.skipped} skipped",
            *_table("site", self.sites),
        ]
        if self.activations:
            lines += [self._forward, *_table("activation", self.activations)]
        if self.weights:
            lines += _table("weight", self.weights)
        if self.without_exponents:
            lines.append(f"without exponents, because they exist only in half: {', '.join(self.without_exponents)}")
        lines += _describe_fp8(self.fp8_products, self.fp8_gradients)
        for name, kinds in self.non_finite.items():
            lines.append(f"not finite first at {name}: " + ", ".join(f"{kind} {count}" for kind, count in kinds.items() if count))
        return "\n".join(lines)

    def _repr_html_(self):
        return self.to_pandas().to_html()

    def to_pandas(self) -> Any:
        """Returns the sites as a ``pandas.DataFrame``, by name."""
        import pandas

        return pandas.DataFrame(self.sites).set_index("name") if self.sites else pandas.DataFrame()

    def to_tensorboard(self, writer: Any, step: int | None = None) -> None:
        """Writes scales and shares with a ``torch.utils.tensorboard.SummaryWriter``."""
        step = self.steps if step is None else step
        for site in self.sites:
            name = site["name"].replace(">", "/")
            writer.add_scalar(f"exponent/{name}", site["exponent"], step)
            for key in ("flushed", "subnormal"):
                if site[key] is not None:
                    writer.add_scalar(f"{key}/{name}", site[key], step)
        for key in ("steps", "repeats", "skipped"):
            writer.add_scalar(f"gradscale/{key}", getattr(self, key), step)


def _table(title, sites):
    """Returns the lines of a table of sites, with a heading. Formats other than FP16 are named in the heading."""
    formats = {site["format"] for site in sites} - {"fp16"}
    title = f"{title} ({', '.join(sorted(formats))})" if formats else title
    yield f"{title:40} {'scale':>8} {'flushed':>9} {'subnormal':>9} {'largest':>9} {'overflows':>9}  limited by"
    for site in sites:
        name = site["name"] if len(site["name"]) <= 40 else "…" + site["name"][-39:]
        largest = site["log2_amax"]
        largest = "-" if largest is None or not math.isfinite(largest) else f"2^{largest:.1f}"
        yield (
            f"{name:40} {'2^' + str(site['exponent']):>8} {_share(site['flushed']):>9} {_share(site['subnormal']):>9}"
            f" {largest:>9} {site['overflows']:>9}  {site['limited_by'] or '-'}"
        )


def _describe_fp8(products, gradients):
    """Returns the lines about products in FP8: how many were computed so, and why the others were not."""
    if not products and not gradients:
        return []
    count = sum(reason is None for reason in products.values())
    lines = [
        f"products in FP8: {count} of {len(products)} of the last forward pass, and {gradients.get(None, 0)} of"
        f" {sum(gradients.values())} of all backward passes"
    ]
    for reason in sorted({reason for reason in (*products.values(), *gradients) if reason is not None}):
        names = ", ".join(name for name, found in products.items() if found == reason) or "none"
        lines.append(f"not in FP8 ({reason}): {names}, and {gradients.get(reason, 0)} of backward passes")
    return lines


def _share(value):
    return "-" if value is None else f"{100 * value:.3f}%"


def find_non_finite_layer(model: torch.nn.Module, *args: Any, **kwargs: Any) -> str | None:
    """Returns the name of the first layer of `model` whose results are not finite although its inputs are;
    ``"input"`` if the inputs are not; None if everything is finite. Runs the forward pass once, and reads a number
    after each layer. Use it if a report shows that NaN or ±∞ arrived, which no scale cures. Running statistics do
    not change."""
    found, handles = [], []

    def bad(values):
        tensors = [x for x in tree_leaves(values) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        return any(not torch.isfinite(x).all() for x in tensors)

    def watch(name):
        def hook(module, inputs, out):
            if not found and bad(out):
                found.append(name or type(module).__name__)

        return hook

    if bad((args, kwargs)):
        return "input"
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_hook(watch(name)))
        with torch.no_grad():
            model(*args, **kwargs)
            for buffer, value in buffers:
                buffer.copy_(value)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
