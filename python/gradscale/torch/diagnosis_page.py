"""Page of a diagnosis: one HTML file without scripts, which loads nothing."""

from __future__ import annotations

import html
import math
import os
import pathlib
import tempfile

#: Line by which a file is known to be such a page, and may be replaced.
MARK = '<meta name="generator" content="gradscale.torch.diagnose">'
#: Bytes of a file that are read to find the mark: it is in the first 200.
HEAD_BYTES = 1024
#: Exponents at the ends of the picture of the window. All windows and loss scales of libraries that were measured are inside.
MIN_SHOWN, MAX_SHOWN = -24, 40

_STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b2430; --soft: #56606e; --rule: #dfe4ea;
  --zero: 184 92 0; --over: 178 38 90; --band: #1a9c78; }
@media (prefers-color-scheme: dark) { :root { --page: #11161d; --card: #1a212b; --ink: #e6ebf1; --soft: #9ba8b7; --rule: #2b3542;
  --zero: 255 160 70; --over: 240 120 170; --band: #35c795; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 3rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0 0 .6rem; font-size: 1.4rem; } h2 { margin: 2rem 0 .4rem; font-size: 1.15rem; }
p { margin: .3rem 0; max-width: 52rem; } .soft { color: var(--soft); }
.advice { margin: 0; padding: .8rem 1rem; background: var(--card); border-left: .3rem solid var(--band); font-size: 1.1rem; }
.strip { position: relative; height: 5.1rem; margin: .6rem 0; overflow: hidden; background: var(--card); border: 1px solid var(--rule); }
.band { position: absolute; top: 0; height: 1.9rem; background: var(--band); }
.at { position: absolute; top: 0; height: 2.3rem; border-left: 2px solid var(--ink); }
.at span { position: absolute; top: 2.3rem; transform: translateX(-50%); font-size: .8rem; white-space: nowrap; }
.at.running { height: 3.6rem; border-left-style: dashed; } .at.running span { top: 3.6rem; }
.scroll { overflow-x: auto; border: 1px solid var(--rule); background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; min-width: 9rem; white-space: normal; }
th:first-child, td:first-child { overflow-wrap: normal; }
.places td, .places th { text-align: left; white-space: normal; }
thead th { font-weight: 600; } td small { color: var(--soft); }
td.zero { background: rgb(var(--zero) / var(--p, 0)); } td.over { background: rgb(var(--over) / var(--p, 0)); }
summary { cursor: pointer; margin: .8rem 0 .4rem; font-weight: 600; }
"""


def save(found, path):
    """Writes the page of a diagnosis. Raises FileExistsError rather than replace a file of another kind."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f'{path} is a folder: name a file in it, such as "{path / "report.html"}"')
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: create it first")
    # A link stays, and its target is written.
    path = pathlib.Path(os.path.realpath(path))
    if path.exists():
        with open(path, "rb") as file:
            ours = MARK.encode() in file.read(HEAD_BYTES)
        if not ours:
            raise FileExistsError(f"{path} is not a page of gradscale.torch.diagnose, and is not replaced: name another file")
    # Renamed when it is complete, so that a full disk leaves the old page.
    number, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(written(found))
        # mkstemp's file is for its owner only, unlike other new files.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def written(found):
    """Returns the page as text."""
    from .diagnosis import FORMATS

    outputs = [(f"{layer.name}", layer.kind, layer.output_amax, layer.gradient) for layer in found.layers]
    parameters = [(name, "", None, values) for name, values in found.parameters.items()]
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n{MARK}\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>FP16 diagnosis</title>\n',
        f"<style>{_STYLE}</style></head><body>\n<h1>FP16 diagnosis</h1>\n",
        f'<p class="advice">{html.escape(found.recommendation)}</p>\n',
        f'<p class="soft">{len(found.layers)} layers, {len(found.parameters)} parameters, loss {found.loss:.4g} in float32.'
        f" Forward in half: {html.escape(found.forward())}.</p>\n",
        "<h2>Window of a single loss scale</h2>\n", *_window(found),
        "<h2>All gradients</h2>\n", *_totals(found),
        "<h2>Gradients of layers and parameters</h2>\n",
        '<p class="soft">Zero: share of the non-zero values that becomes zero at this loss scale. Over: share that overflows.'
        " E4M3 overflows to NaN, or saturates at 448; both count.</p>\n",
    ]
    for format, label in FORMATS.items():
        for what, rows in (("outputs of layers", outputs), ("parameters", parameters)):
            parts.append(f"<details{' open' if format == 'fp16' else ''}><summary>{label}: {what}</summary>\n")
            parts += _table(found, format, rows)
            parts.append("</details>\n")
    return "".join(parts) + "</body></html>\n"


def _position(exponent):
    inside = min(max(exponent, MIN_SHOWN), MAX_SHOWN)
    return 100 * (inside - MIN_SHOWN) / (MAX_SHOWN - MIN_SHOWN)


def _window(found):
    if found.window is None:
        yield f"<p>Not measured: {html.escape(found.window_error)}.</p>\n"
        return
    half = found.window.half
    yield f"<p>Weight gradients in half, as torch.amp stores them: {html.escape(str(half))}.</p>\n"
    yield f'<p class="soft">Weight gradients in float32: {html.escape(str(found.window.f32))}.</p>\n<div class="strip">'
    if half.low is not None:
        left, right = _position(half.low), _position(half.high)
        yield f'<div class="band" style="left:{left:.2f}%;width:{right - left:.2f}%"></div>'
    for exponent, label in ((0, "1"), (7, "2^7"), (16, "2^16"), (32, "2^32")):
        yield f'<div class="at" style="left:{_position(exponent):.2f}%"><span>{label}</span></div>'
    if "running" in found.scales:
        exponent = math.log2(found.scales["running"])
        yield f'<div class="at running" style="left:{_position(exponent):.2f}%"><span>running 2^{exponent:.3g}</span></div>'
    yield "</div>\n"
    rows = "".join(f"<tr><td>{name}</td><td>{place or 'no scale works'}</td></tr>" for name, place in found.window.places.items())
    yield f'<div class="scroll places"><table><thead><tr><th>loss scale of</th><th>place in the window</th></tr></thead>{rows}</table></div>\n'


def _scale_names(found):
    from .diagnosis import power

    return [f"running {power(number)}" if name == "running" else name for name, number in found.scales.items()]


def _cell(part, whole, kind):
    from .diagnosis import share

    if not part:
        return f'<td class="{kind}">–</td>'
    # The square root makes one in a hundred visible; at most 0.55, so that text on it is read.
    strength = 0.55 * (part / whole) ** 0.5
    return f'<td class="{kind}" style="--p:{strength:.3f}" title="{part} of {whole}">{html.escape(share(part, whole))}</td>'


def _heads(found, before):
    scales = "".join(f"<th>zero at {name}</th><th>over at {name}</th>" for name in _scale_names(found))
    return f"<thead><tr>{''.join(f'<th>{name}</th>' for name in before)}{scales}</tr></thead>"


def _totals(found):
    from .diagnosis import FORMATS

    yield f'<div class="scroll"><table>{_heads(found, ["gradients, format", "values"])}<tbody>\n'
    for what, parameters in (("outputs", False), ("parameters", True)):
        for format, label in FORMATS.items():
            cells, whole = "", 0
            for scale in found.scales:
                loss, whole = found.total(format, scale, parameters)
                cells += _cell(loss.flushed, whole, "zero") + _cell(loss.overflowed, whole, "over")
            yield f"<tr><td>{what}, {label}</td><td>{whole}</td>{cells}</tr>\n"
    yield "</tbody></table></div>\n"


def _table(found, format, rows):
    from .diagnosis import power

    yield f'<div class="scroll"><table>{_heads(found, ["name", "largest gradient", "largest output", "values"])}<tbody>\n'
    for name, kind, output, values in rows:
        # Long names may be broken after a dot.
        label = html.escape(name).replace(".", ".<wbr>") + (f" <small>{html.escape(kind)}</small>" if kind else "")
        largest = "" if output is None else power(output)
        if values is None:
            yield f'<tr><td>{label}</td><td>–</td><td>{largest}</td><td>–</td><td colspan="{2 * len(found.scales)}">no gradient</td></tr>\n'
            continue
        casts = values.casts[format].values()
        pairs = [_cell(one.flushed, values.nonzero, "zero") + _cell(one.overflowed, values.nonzero, "over") for one in casts]
        cells = "".join(pairs)
        yield f"<tr><td>{label}</td><td>{power(values.amax)}</td><td>{largest}</td><td>{values.count}</td>{cells}</tr>\n"
    yield "</tbody></table></div>\n"
