"""The front page of the site: front.html with a picture, figures and a table that come from the documents and the record."""

import csv
import html
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
RECORD = ROOT / "docs/science/natural.csv"
# Methods of the record that the picture shows: its class in site.css, and its label.
METHODS = {"f32": ("f32", "f32"), "torch.amp": ("amp", "torch.amp, defaults"), "attach": ("ours", "gradscale")}
LAST_EPOCH = 60

# Size of the picture, and of its plot, in units of the SVG. Text on phones is larger (site.css), so rows keep 22 apart.
PICTURE_WIDTH, PICTURE_HEIGHT = 440, 296
PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, PLOT_BOTTOM = 34, 432, 8, 222
# The axis of accuracies begins at zero, so that the picture does not enlarge the difference.
MAX_SCORE = 59


class FrontPageError(Exception):
    """The front page cannot be written from the documents as they are."""


def read_runs(rows):
    """Returns the rows of the NaN image by method and seed, in the order of epochs."""
    runs = {method: {} for method in METHODS}
    for row in rows:
        if row["experiment"] == "bad_image" and row["method"] in METHODS:
            runs[row["method"]].setdefault(int(row["seed"]), []).append(row)
    for method, seeds in runs.items():
        # An incomplete run has no final score.
        complete = {seed: sorted(found, key=epoch) for seed, found in seeds.items() if max(map(epoch, found)) == LAST_EPOCH}
        if not complete:
            raise FrontPageError(f"{RECORD.name} has no complete run of bad_image by {method}, which the front page shows")
        runs[method] = complete
    return runs


def epoch(row):
    """Returns the epoch of a row of the record."""
    return int(row["step"])


def score(row):
    """Returns the accuracy of a row, in percent."""
    return float(row["score"])


def last_scores(runs, method):
    """Returns the accuracies after the last epoch, from low to high."""
    return sorted(score(found[-1]) for found in runs[method].values())


def format_range(scores):
    """Writes accuracies as one number, or as the least and the greatest."""
    least, greatest = f"{scores[0]:.1f}", f"{scores[-1]:.1f}"
    return f"{least} %" if least == greatest else f"{least} to {greatest} %"


def format_power(exponent):
    """Writes a power of two with raised digits, which every browser shows."""
    return "2" + f"{exponent:.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def draw_picture(runs):
    """Returns the SVG: accuracy by epoch, a line for each seed, with the loss scale of torch.amp below."""
    x = lambda one: PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * one / LAST_EPOCH
    y = lambda value: PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * value / MAX_SCORE
    best, failed = {}, last_scores(runs, "torch.amp")
    for method in ("f32", "attach"):
        best[method] = last_scores(runs, method)
        if best[method][0] <= failed[-1]:
            raise FrontPageError(f"in {RECORD.name} torch.amp ends no lower than {method}: the words of the front page do not hold")
    parts = []
    for value in range(0, 51, 10):
        parts.append(f'<line class="grid" x1="{PLOT_LEFT}" x2="{PLOT_RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{PLOT_LEFT - 7}" y="{y(value) + 5:.1f}" text-anchor="end">{value}</text>')
    for method in ("f32", "torch.amp", "attach"):
        for found in runs[method].values():
            points = " ".join(f"{x(epoch(row)):.1f},{y(score(row)):.1f}" for row in found)
            parts.append(f'<polyline class="{METHODS[method][0]}" points="{points}"/>')
    # Labels are in the empty parts of the plot: above the upper lines, and below the lower ones.
    above = y(max(score(row) for method in best for found in runs[method].values() for row in found)) - 10
    for method, at in (("f32", above), ("attach", above - 20), ("torch.amp", y(failed[0]) + 22)):
        kind, label = METHODS[method]
        text = f"{label} {format_range(last_scores(runs, method))}"
        parts.append(f'<text class="label {kind}" x="{PLOT_RIGHT}" y="{at:.1f}" text-anchor="end">{text}</text>')
    # Epoch 1 is next to epoch 2, so its label would overlap; scales are those of the first seed.
    first = [row for row in runs["torch.amp"][min(runs["torch.amp"])] if epoch(row) >= 10]
    parts.append(f'<text x="{PLOT_LEFT}" y="{PLOT_BOTTOM + 20}">epoch</text>')
    for row in first:
        middle = "end" if epoch(row) == LAST_EPOCH else "middle"
        at = PLOT_RIGHT if epoch(row) == LAST_EPOCH else x(epoch(row))
        power = format_power(float(row["log2_scale"]))
        parts.append(f'<text x="{at:.1f}" y="{PLOT_BOTTOM + 20}" text-anchor="{middle}">{epoch(row)}</text>')
        parts.append(f'<text class="label amp" x="{at:.1f}" y="{PLOT_BOTTOM + 66}" text-anchor="{middle}">{power}</text>')
    parts.append(f'<text x="{PLOT_LEFT}" y="{PLOT_BOTTOM + 43}" class="label amp">loss scale of torch.amp</text>')
    title = (
        f"Test accuracy in percent by epoch. After epoch {LAST_EPOCH}: gradscale {format_range(best['attach'])}, f32 {format_range(best['f32'])}, "
        f"torch.amp float16 with its defaults {format_range(failed)}."
    )
    return f'<svg class="picture" viewBox="0 0 {PICTURE_WIDTH} {PICTURE_HEIGHT}" role="img" aria-label="{title}">{"".join(parts)}</svg>'


def write_caption(runs):
    """Returns the sentences below the picture, with the seeds of each method."""
    counts = ", ".join(f"{label.partition(',')[0]} {len(runs[method])}" for method, (_, label) in METHODS.items())
    return (
        "All three skip the bad batch, about once an epoch. torch.amp also halves its scale, "
        f"until gradients become zero. One line for each seed ({counts}), on one CPU thread."
    )


def section(text, heading):
    """Returns a section of a Markdown document, without its heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not found:
        raise FrontPageError(f"README.md has no section {heading}, from which the front page takes its table")
    return found[1]


def hardware_table(readme):
    """Returns README's table of hardware as HTML, without links, because the page has them below."""
    rows = [line.strip("|").split("|") for line in section(readme, "Status").splitlines() if line.startswith("|")]
    cells = [[re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.strip()) for cell in row] for row in rows if not row[0].startswith("---")]
    if len(cells) < 2:
        raise FrontPageError("README.md has no table in its section Status")
    line = lambda tag, row: "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
    return f"<table><thead>{line('th', cells[0])}</thead><tbody>{''.join(line('td', row) for row in cells[1:])}</tbody></table>"


def find(pattern, text, document):
    """Returns the first group of a pattern that a document must have."""
    found = re.search(pattern, text)
    if not found:
        raise FrontPageError(f"{document} has no text like {pattern}, which the front page shows")
    return found[1]


def list_pages(chapters, pages):
    """Returns the map of the site: chapters with their pages. Decisions are many, and have a page that lists them."""
    parts = []
    for chapter, listed in chapters.items():
        if chapter == "Decisions":
            continue
        items = "".join(f'<li><a href="{pages[path].removesuffix("md")}html">{html.escape(title)}</a></li>' for title, path in listed)
        parts.append(f"<div><h3>{html.escape(chapter or 'Begin')}</h3><ul>{items}</ul></div>")
    parts.append('<div><h3>Interface</h3><ul><li><a href="api.html">All libraries</a></li></ul></div>')
    return "\n".join(parts)


# Leads to the page that trains in the browser, if the site has it.
BROWSER = '<a href="browser/index.html">Watch the scale fall in your browser, with digits</a>. '


def write_front(chapters, pages, rows=None, has_browser_page=False):
    """Returns the front page."""
    if rows is None:
        with RECORD.open(newline="") as file:
            rows = list(csv.DictReader(file))
    runs, readme = read_runs(rows), (ROOT / "README.md").read_text()
    values = {
        "picture": draw_picture(runs),
        "caption": write_caption(runs),
        "browser": BROWSER if has_browser_page else "",
        "rust": find(r"with Rust ([\d.]+ or newer)", readme, "README.md"),
        "version": find(r"Version ([\d.]+) is not released yet", readme, "README.md"),
        "claims": find(r"(Of \d+ claims: [^.]*\.)", (ROOT / "docs/claims.md").read_text(), "docs/claims.md"),
        "hardware": hardware_table(readme),
        "pages": list_pages(chapters, pages),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], (FOLDER / "front.html").read_text())
