"""Pages of scripts/rust_peers.py: the agreement of the losses, tables for docs/performance.md, a sentence for README.md."""

import json
import math
import re
import statistics
import sys

from performance_page import PAGE, ROOT, commit, fill_section, machine, spread  # noqa: F401

README = ROOT / "README.md"
MARKS = "<!-- rust peers: written by scripts/rust_peers.py -->", "<!-- end of rust peers -->"
# Programs of scripts/rust_peers, with the crate whose version counts.
CRATES = {"gradscale": "gradscale", "burn": "burn", "candle": "candle-core"}
# Compared trainings: program and method. The first is the one that the others are compared with.
SIDES = {"gradscale f32": ("gradscale", "fp32"), "gradscale gs": ("gradscale", "gs"), "burn": ("burn", "f32"),
         "candle": ("candle", "f32")}
OURS, PEERS = "gradscale f32", ["burn", "candle"]
# Sizes of the networks, as scripts/rust_peers/shared.rs explains them.
NETWORKS = {"mlp": [256, 784, 1024, 1024, 10], "cnn": [64, 32, 32, 64, 128, 10], "transformer": [4, 128, 1000, 256, 4, 4]}
NAMES = {"mlp": "MLP", "cnn": "CNN", "transformer": "transformer"}
# Largest allowed differences of a loss from ours in f32, relative to it: several times those that were measured, which the
# page has.
BOUNDS = {"gradscale gs": 1e-3, "burn": 1e-4, "candle": 1e-4}
# The loss must move by this many times the widest bound, or its agreement would say nothing about gradients. Without
# updates the batches differ by 0.3 % at most.
MIN_CHANGE = 5.0


def differences(losses):
    """Largest relative difference of each side's losses from ours in f32."""
    return {side: max(abs(one - ours) / abs(ours) for one, ours in zip(losses[side], losses[OURS], strict=True)) for side in BOUNDS}


def disagreement(row):
    """Returns why the trainings of a row are not the same, or None if they are."""
    where = f"{NAMES[row['network']]}, {row['threads']} thread{'s' * (row['threads'] > 1)}"
    if len(set(row["parameters"].values())) != 1:
        counts = ", ".join(f"{side} {count}" for side, count in row["parameters"].items())
        return f"{where}: numbers of parameters differ: {counts}"
    if not all(math.isfinite(loss) for losses in row["losses"].values() for loss in losses):
        return f"{where}: a loss is not finite"
    for side, found in differences(row["losses"]).items():
        if found > BOUNDS[side]:
            return f"{where}: losses of {side} differ from those of {OURS} by {found:.1e}, more than {BOUNDS[side]:.0e}"
    ours = row["losses"][OURS]
    if (max(ours) - min(ours)) / ours[0] < MIN_CHANGE * max(BOUNDS.values()):
        return f"{where}: the loss hardly changes ({ours[0]:.4f} to {ours[-1]:.4f}), so its agreement shows nothing"
    return None


def describe_network(network):
    sizes = NETWORKS[network]
    if network == "mlp":
        return f"MLP {' – '.join(map(str, sizes[1:]))}, {sizes[0]} images"
    if network == "cnn":
        images, side, *channels, _ = sizes
        return f"CNN, {', '.join(map(str, channels))} channels, {images} × {side} × {side}"
    texts, context, _, width, heads, layers = sizes
    return f"transformer, {layers} layers, width {width}, {heads} heads, {texts} × {context}"


def divide(row, side, other):
    """Ratios of two sides' times, turn by turn."""
    return [one / two for one, two in zip(row["seconds"][side], row["seconds"][other], strict=True)]


def milliseconds(values):
    """Median with quartiles, in milliseconds."""
    first, median, third = (1000 * value for value in statistics.quantiles(values, n=4))
    digits = 1 if median < 100 else 0
    return f"{median:.{digits}f} ({first:.{digits}f} – {third:.{digits}f})"


def list_times(row):
    ratios = [spread(divide(row, OURS, peer)) for peer in PEERS] + [spread(divide(row, "gradscale gs", OURS))]
    return [describe_network(row["network"]), str(row["threads"]), *(milliseconds(row["seconds"][side]) for side in SIDES), *ratios]


def list_memory(row):
    return [describe_network(row["network"]), str(row["threads"]), *(f"{row['peak'][side] / 1e6:.0f}" for side in SIDES)]


def list_build(row):
    return [f"{row['name']} {row['version']}", str(row["crates"]), f"{row['wall']:.0f}", f"{row['processor']:.0f}"]


def describe_row(part, row):
    """A row for the terminal."""
    return " | ".join(list_build(row) if part == "builds" else list_times(row) + list_memory(row)[2:])


def table(columns, rows):
    return ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|", *("| " + " | ".join(row) + " |" for row in rows), ""]


def describe_origin(found, more=""):
    busy = f", load {found['load']:.1f} when it began" if found["load"] > 0.5 else ""
    return f"<sub>{found['date']}, commit {found['commit']}, {found['machine']}{busy}; Rust {found['cargo']}, `{found['flags']}`{more}.</sub>"


def describe_steps(found):
    """Lines about times, memory and agreement."""
    rows = found["rows"]
    counts = sorted({len(values) for row in rows for values in row["seconds"].values()})
    worst = {side: max(differences(row["losses"])[side] for row in rows) for side in BOUNDS}
    compared = len(rows[0]["losses"][OURS])
    agreement = ", ".join(f"{side} {value:.0e}" for side, value in worst.items())
    parameters = ", ".join(f"{NAMES[network]} {rows_of[0]['parameters'][OURS]:,}".replace(",", " ") for network in NETWORKS
                           if (rows_of := [row for row in rows if row["network"] == network]))
    ratios = ["f32 / burn", "f32 / candle", "gs / f32"]
    return [
        "Time of a step in milliseconds: median (quartiles).", "", *table(["network", "threads", *SIDES, *ratios], map(list_times, rows)),
        "Peak memory of the process in MB.", "", *table(["network", "threads", *SIDES], map(list_memory, rows)),
        f"Parameters: {parameters}. Largest relative difference of a loss from gradscale's f32 in the first {compared} steps: {agreement}.", "",
        describe_origin(found, f"; {' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} turns a row"), "",
    ]


def describe_builds(found):
    """Lines about crates and builds."""
    columns = ["framework", "crates", "build, seconds", "of all processors, seconds"]
    return ["Release build of the program from nothing, without downloads.", "", *table(columns, map(list_build, found["rows"])), describe_origin(found), ""]


def read_versions():
    """Versions of the peers that their programs ask for."""
    manifests = {peer: (ROOT / f"scripts/rust_peers/{peer}/Cargo.toml").read_text() for peer in PEERS}
    return {peer: re.search(rf'^{CRATES[peer]} = .*?"=([\d.]+)"', text, re.M).group(1) for peer, text in manifests.items()}


def summarise(steps):
    """The sentence for README: medians of the ratios on the largest number of threads."""
    threads = max(row["threads"] for row in steps["rows"])
    rows = {row["network"]: row for row in steps["rows"] if row["threads"] == threads}
    listed = lambda words: " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
    ratios = {peer: listed([f"{statistics.median(divide(row, OURS, peer)):.2f}" for row in rows.values()]) for peer in PEERS}
    said = "; ".join(f"{ratios[peer]} of {peer} {version}'s" for peer, version in read_versions().items())
    names = listed([NAMES[network] for network in rows])
    return (f"[Rust frameworks](docs/performance.md#beside-burn-and-candle): steps of {names} in f32 on {threads} threads take these shares of "
            f"their time: {said}.")


def read_parts(folder):
    """Results of the parts that exist."""
    paths = {part: folder / f"{part}.json" for part in ("steps", "builds")}
    return {part: json.loads(path.read_text()) for part, path in paths.items() if path.exists()}


def write_section(found):
    """The generated section of docs/performance.md."""
    lines = describe_steps(found["steps"]) if "steps" in found else []
    lines += describe_builds(found["builds"]) if "builds" in found else []
    return "\n".join(lines).rstrip("\n")


def write_pages(folder):
    """Writes both pages, and returns the missing parts."""
    found = read_parts(folder)
    if not found:
        sys.exit(f"{folder} has no results")
    PAGE.write_text(fill_section(PAGE.read_text(), MARKS, f"\n\n{write_section(found)}\n\n"))
    if "steps" in found:
        README.write_text(fill_section(README.read_text(), MARKS, summarise(found["steps"])))
    return [part for part in ("steps", "builds") if part not in found]
