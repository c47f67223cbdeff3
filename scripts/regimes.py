#!/usr/bin/env python3
"""Natural regimes and windows of a single loss scale: docs/regimes.md, from docs/science/regimes.json.

usage: scripts/regimes.py --record PROGRAM --data DIRECTORY [--seeds 0,1,2] [--only NAME ...]
       scripts/regimes.py --page
       scripts/regimes.py --check

--record runs PROGRAM (`gradscale`) and replaces the record of each part that ran; NAME is a regime, a figure, or the
network of a window. --page writes the page from the record. --check exits with 1 if the page differs from it.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts/natural")]
import one_in_n  # noqa: E402
import page as natural  # noqa: E402
import record as natural_record  # noqa: E402
import scale_by_size  # noqa: E402

RECORD = ROOT / "docs/science/regimes.json"
PAGE = ROOT / "docs/regimes.md"

IMAGES, RECORDINGS = "fashion-mnist-10k", "fsdd"
REGIMES = ["bad-sample:nan", "bad-sample:infinite", "bad-sample:corrupt", "short-recordings",
           "short-recordings:zero-infinity", "rare-reward", "eight-bits:ordinary", "eight-bits:examples", "eight-bits:outputs"]
FIGURES = ["one-in-n", "scale-by-size"]
# Network, data (none: made up), options, steps before the measurement.
WINDOWS = [
    ("segnet-basic", "camvid-90x120", "--width 16 --batch 4", [0, 30]),
    ("resnet-8", "cifar10-10k", "--width 16 --batch 32", [0, 30]),
    ("alexnet", "cifar10-10k", "--width 16 --batch 32", [0]),
    ("deep-speech-2", "fsdd", "--width 8 --batch 8", [0]),
    ("decoder", None, "--width 4 --batch 8", [0]),
]
# The experiment of PyTorch's own GradScaler that stands beside a family, with its own network.
EXPERIMENT_OF_FAMILY = {"bad-sample": "bad_image", "short-recordings": "short_recordings", "rare-reward": "rare_reward"}
# How the regimes of a family fail, and other remedies.
ABOUT = {
    "bad-sample": "The loss of the batch with the damaged image is not finite in f32 either, so every method leaves it out. "
                  "A dynamic scale also halves, once an epoch. An epoch is shorter than its growth interval of 2000 steps, "
                  "so the scale never recovers. A floor under the scale, a fixed scale or per-tensor scales cure it; so "
                  "does a check of the data.",
    "short-recordings": "CTC has no alignment for a recording that is shorter than its transcript, and PyTorch's default "
                        "makes its loss infinite. The right option of the loss (`zero_infinity`) cures it, as do a floor, "
                        "a fixed scale and per-tensor scales.",
    "rare-reward": "Updates without a reward have gradients of zero, which a dynamic scale counts as clean. It grows until "
                   "the reward overflows, and drops the only batches that could teach something. A fixed scale or a cap "
                   "on growth cures it; a floor does not.",
    "eight-bits": "Made for formats of 8 bits: five tasks have one tensor of logits, and their losses count 1 to 1e-12. Adam "
                  "divides by the magnitude of each parameter's gradients, so f32 learns all tasks. A format loses the tasks "
                  "that lie below its range. In `examples` each image belongs to one task, so rows of the gradient differ, and a "
                  "scale for each row or part of a row suffices. In `outputs` each image belongs to all tasks, so values within "
                  "a row differ. `ordinary` is a classifier with one task.",
}


def load():
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"regimes": {}, "figures": {}, "windows": {}}


def save(record):
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def record_regime(program, data, name, seeds):
    """One regime by all methods, without its exponents over time."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "regimes", "--only", name, "--seeds", seeds, "--data", str(data / IMAGES),
                   "--recordings", str(data / RECORDINGS), "--out", folder + "/out"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        results = json.loads(pathlib.Path(folder, "out/regimes.json").read_text(encoding="utf-8"))
    kept = ["method", "seed", "steps", "score", "skipped", "finite_skipped", "repeated", "scale", "seconds"]
    rows = {}
    for row in results["rows"]:
        rows.setdefault(row["regime"], []).append({key: row[key] for key in kept})
    about = {regime["name"]: regime for regime in results["regimes"]}
    origin = {key: results[key] for key in ["version", "commit", "machine", "data"]}
    return {regime: {**origin, **about[regime], "rows": rows[regime]} for regime in rows}


def record_figure(program, name):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "regimes", "--only", name, "--out", folder + "/out"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        results = json.loads(pathlib.Path(folder, "out/regimes.json").read_text(encoding="utf-8"))
        text = pathlib.Path(folder, "out/table.md").read_text(encoding="utf-8")
    figure = results["figures"][0]
    figure["text"] = text.split("```text\n")[1].split("```")[0]
    return {**figure, **{key: results[key] for key in ["version", "commit", "machine"]}}


def record_window(program, data, network, where, options, steps):
    command = [program, "window", "--network", network, *options.split(), "--steps", str(steps), "--json"]
    if where:
        command += ["--data", str(data / where)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {**json.loads(printed), "options": options}


def record(arguments):
    program, data = str(pathlib.Path(arguments.record).resolve()), pathlib.Path(arguments.data)
    known = REGIMES + FIGURES + [network for network, *_ in WINDOWS]
    wanted = arguments.only or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"{', '.join(unknown)}: there are {', '.join(known)}")
    result = load()
    for name in wanted:
        if name in FIGURES:
            result["figures"][name] = record_figure(program, name)
        elif name in REGIMES:
            # `short-recordings` is also the name of its family.
            if name.split(":")[0] in wanted and name not in (arguments.only or []) and ":" in name:
                continue
            result["regimes"].update(record_regime(program, data, name, arguments.seeds))
        else:
            for network, where, options, all_steps in WINDOWS:
                if network == name:
                    for steps in all_steps:
                        found = record_window(program, data, network, where, options, steps)
                        result["windows"][f"{network} {steps}"] = found
        save(result)
        print(name, flush=True)


def power(exponent):
    return "–" if exponent is None else f"2^{exponent}"


def cell(rows, key, digits=None):
    """Values of all seeds, one after the other."""
    values = [row[key] for row in rows]
    if all(value is None for value in values):
        return "–"
    if digits is None:
        return " ".join("–" if value is None else str(value) for value in values)
    return " ".join("none" if value is None else f"{value:.{digits}f}" for value in values)


def regime_table(regime):
    methods = []
    for row in regime["rows"]:
        if row["method"] not in methods:
            methods.append(row["method"])
    lines = [f"| method | {regime['score']} | loss scale at the end | skipped | of these finite in f32 | repeated |",
             "|---|---|---|---|---|---|"]
    for method in methods:
        rows = sorted((row for row in regime["rows"] if row["method"] == method), key=lambda row: row["seed"])
        scales = "–" if method == "fp32" else " ".join(power(row["scale"]) for row in rows)
        scales = "–" if set(scales.split()) == {"–"} else scales
        lines.append(f"| {method} | {cell(rows, 'score', 1)} | {scales} | {cell(rows, 'skipped')} | "
                     f"{cell(rows, 'finite_skipped')} | {cell(rows, 'repeated')} |")
    return lines


def origin(part):
    return f"gradscale {part['version']} ({part['commit']}) on {part['machine']}"


def beside(family):
    """Results of PyTorch's own GradScaler and of attach for the same condition."""
    data, experiment = natural.Record(natural_record.read_rows()), EXPERIMENT_OF_FAMILY[family]
    cells = "; ".join(f"{natural.NAMES[way]} {natural.cell(data, experiment, way)}" for way in natural.WAYS)
    title, what = natural.TITLES[experiment]
    return f"Beside it, PyTorch's own libraries with a network of their own ({title}; {what}): {cells}. [More](natural.md)."


def one_in_n_table(figure):
    """The share of dropped batches: simulated by this project's code, by PyTorch's own, and by the law."""
    torch, rows = one_in_n.shares(one_in_n.read_rows()), {row["one_in"]: row for row in figure["rows"]} if figure else {}
    percent = lambda share: "not recorded yet" if share is None else f"{100 * share:.0f} %"
    lines = ["| large batches, one in | gradscale's scale | PyTorch's own `_amp_update_scale_` | law |", "|---|---|---|---|"]
    for rarity in one_in_n.RARITIES:
        row = rows.get(rarity, {})
        law = min(1.0, rarity / one_in_n.INTERVAL)
        lines.append(f"| {rarity} | {percent(row.get('simulated'))} | {percent(torch.get(rarity))} | {percent(law)} |")
    versions = ", ".join(sorted({row["torch"] for row in one_in_n.read_rows()}))
    return lines + ["", f"<sub>PyTorch's column: `scripts/natural/one_in_n.py`, {one_in_n.EVENTS} large batches a row, of which one run "
                        f"varies by 4 points; PyTorch {versions or 'not run yet'}.</sub>", ""]


def scale_by_size_part():
    """What PyTorch's own GradScaler finds, with a network of its own."""
    rows = scale_by_size.read_rows()
    if not rows:
        return ["PyTorch's own GradScaler: not recorded yet.", ""]
    versions = ", ".join(sorted({row["torch"] for row in rows}))
    return ["Beside it, PyTorch's own GradScaler with a smaller network of its own. Each dropped step takes one bit from a scale "
            "that begins too high.", "", *scale_by_size.table(rows), "",
            f"<sub>`scripts/natural/scale_by_size.py`; PyTorch {versions}, one seed.</sub>", ""]


def regimes_part(record):
    lines, seen = [], set()
    missing = [name for name in REGIMES if name not in record["regimes"]]
    for name in REGIMES:
        regime, family = record["regimes"].get(name), name.split(":")[0]
        if family not in seen:
            lines += [f"## {family}", "", ABOUT[family], ""]
            if family in EXPERIMENT_OF_FAMILY:
                lines += [beside(family), ""]
            seen.add(family)
        if not regime:
            continue
        seeds = sorted({row["seed"] for row in regime["rows"]})
        steps = regime["rows"][0]["steps"]
        better = "higher" if regime["higher_is_better"] else "lower"
        lines += [f"**{name}**: {regime['about']}. {steps} steps; {better} scores are better; one number for each of seed "
                  f"{', '.join(map(str, seeds))}.", ""]
        lines += regime_table(regime)
        lines += ["", f"<sub>`gradscale regimes --only {name} --seeds {','.join(map(str, seeds))} "
                      f"--data DATA/{IMAGES} --recordings DATA/{RECORDINGS}`; {regime['data']}; {origin(regime)}.</sub>", ""]
    if missing:
        lines += [f"Not recorded yet: {', '.join(missing)}.", ""]
    return lines


def figures_part(record):
    lines = []
    for name in FIGURES:
        figure = record["figures"].get(name)
        if figure:
            lines += [f"## {name}", "", f"{figure['about'][0].upper()}{figure['about'][1:]}.", ""]
            # The table below says the same, with PyTorch's own beside it.
            if name != one_in_n.NAME:
                lines += ["```text", *figure["text"].rstrip("\n").split("\n"), "```", ""]
            lines += [f"<sub>`gradscale regimes --only {name}`; {origin(figure)}.</sub>", ""]
        else:
            lines += [f"## {name}", "", "Not recorded yet.", ""]
        if name == one_in_n.NAME:
            lines += one_in_n_table(figure)
        elif name == "scale-by-size":
            lines += scale_by_size_part()
    return lines


def windows_part(record):
    lines = ["## Windows of a single loss scale", "",
             "`gradscale window` measures at which powers of two every parameter gradient has at most twice the error that it "
             "has with a scale for each tensor, or 2 %. Weight gradients are stored in f32, as Megatron accumulates them, or in "
             "half, as torch.amp, apex and DeepSpeed store them. One batch and seed 0 each.", "",
             "| network | steps | per-tensor error: median, worst | weights f32 | binades | weights half | binades | 2^7 | 2^16 | 2^32 |",
             "|---|---|---|---|---|---|---|---|---|---|"]

    def place(window, exponent):
        if window["least"] is None:
            return "no window"
        if exponent < window["least"]:
            return f"{window['least'] - exponent} too small"
        if window["overflow"] is not None and exponent >= window["overflow"]:
            return f"{exponent - window['overflow'] + 1} too large"
        return "inside"

    def extent(window):
        if window["least"] is None:
            return "none"
        return f"{power(window['least'])} … {'' if window['overflow'] is None else power(window['overflow'] - 1)}".rstrip()

    missing = []
    for network, _, _, all_steps in WINDOWS:
        for steps in all_steps:
            found = record["windows"].get(f"{network} {steps}")
            if not found:
                missing.append(f"{network} after {steps} steps")
                continue
            single, half = found["windows"]
            error = found["per_tensor"]
            lines.append(f"| {found['network']} (`{found['options']}`) | {steps} | {error['median']:.1e}, {error['worst']:.1e} | "
                         f"{extent(single)} | {single['binades']} | {extent(half)} | {half['binades']} | "
                         + " | ".join(place(half, exponent) for exponent in [7, 16, 32]) + " |")
    lines += ["", "The last three columns are the constants of tiny-cuda-nn, torch.amp and DeepSpeed, with weight gradients in "
              "half: binades too small or too large."]
    if missing:
        lines += ["", f"Not recorded yet: {', '.join(missing)}."]
    return lines


def page(record):
    lines = ["# Regimes that people meet", "",
             "Written by `scripts/regimes.py` from [science/regimes.json](science/regimes.json). Networks and numbers are ordinary, "
             "and nothing was tuned until an effect appeared. Methods are those that people have: `torch` is torch.amp's scale with "
             "weight gradients in half, `torch-floor` the same with a floor of 1, `amax:history=16` per-tensor scales as FP8 "
             "libraries have them. The statements that explain these results have proofs in [Control](guide/control.md).", ""]
    return "\n".join(lines + regimes_part(record) + figures_part(record) + windows_part(record)) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="PROGRAM")
    parser.add_argument("--data", metavar="DIRECTORY")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.record:
        if not arguments.data:
            parser.error("--record needs --data")
        record(arguments)
    if arguments.page or arguments.record:
        PAGE.write_text(page(load()), encoding="utf-8")
    if arguments.check and PAGE.read_text(encoding="utf-8") != page(load()):
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what {RECORD.relative_to(ROOT)} says: run scripts/regimes.py --page")


if __name__ == "__main__":
    main()
