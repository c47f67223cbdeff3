#!/usr/bin/env python3
"""The workloads of scripts/workloads.py with stores in 8 bits, over three seeds: docs/eight-bits.md.

usage: scripts/eight_bits.py [--data DIRECTORY --results DIRECTORY [--only NETWORK ...] [--program FILE]]

With --data, trains the runs that docs/science/eight-bits lacks, and adds them; DIRECTORY of data holds the data sets by the
names that scripts/workloads.py gives, that of results keeps the program's output. Then writes the page. Without --data it
only writes.
"""
import pathlib

import paired
import workloads
from study import Study, spread

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = "eight-bits"
MIXED = "grad=e5m2,act=e4m3,weight=e4m3"
METHODS = ["fp32", "gs", f"gs:{MIXED}", f"amax:history=16,margin=1,{MIXED}", f"block:{MIXED},size=128", f"block:{MIXED}", f"block:{MIXED},scale=up"]

# Errors of the parameters' gradients after the last step, relative to a pass in f32, in percent.
GRADIENT_ERRORS = ["gradient_error_median", "gradient_error_worst"]


class EightBits(Study):
    """Network of scripts/workloads.py, trained by methods of 8 bits."""

    def __init__(self, workload):
        self.network, self.family, self.differs = workload.network, workload.family, workload.differs
        scores = [(score.key, score.name, score.percent) for score in workload.scores]
        super().__init__(f"{RECORDS}/{self.network}", "docs/eight-bits.md", workload.data, workload.options, workload.steps, METHODS,
                         [(method, "fp32") for method in METHODS[1:]], scores, seeds=workloads.SEEDS)

    def columns(self):
        return [*super().columns(), *GRADIENT_ERRORS]

    def row_of(self, results, method, steps):
        errors = results["runs"][0]["gradient_error"] or {}
        shares = {f"gradient_error_{key}": 100 * value for key in ("median", "worst") if (value := errors.get(key)) is not None}
        return {**super().row_of(results, method, steps), **shares}

    def part(self):
        """The network's section of the page."""
        options = " ".join(map(str, self.options))
        before = f"`gradscale compare --data DATA/{self.data} {options}`, one thread."
        return f"### {self.network}\n\n{self.section(self.shown_rows(), before, '')}\n"

    def errors(self):
        """Cells of the network: the median and the largest error of the gradients of its parameters, for each method."""
        rows = self.shown_rows()
        values = lambda method, key: [float(row[key]) for row in rows if row["method"] == method and row[key]]
        means = lambda method: [spread(values(method, key), 1) for key in GRADIENT_ERRORS if values(method, key)]
        return [" and ".join(means(method)) or "–" for method in METHODS[1:]]

    def memory(self):
        """Cells of the network: the memory of its activations in MB, for f32 and each method."""
        rows = self.shown_rows()
        # A run that has stopped has none on record.
        megabytes = lambda method: max((float(row["activation_bytes"]) / 1e6 for row in rows if row["method"] == method), default=0)
        return [f"{most:.1f}" if (most := megabytes(method)) else "–" for method in METHODS]

    def summary(self):
        """Cells of the network: the difference of each method's training loss to f32."""
        rows = self.shown_rows()
        cells = []
        for method in METHODS[1:]:
            loss = self.pairs_of(rows, method, "fp32", "loss_last_half")
            stopped = len(self.stops(rows, method))
            if stopped:
                cells.append(f"{stopped} of {sum(row['method'] == method for row in rows)} runs stopped")
            elif loss is None:
                cells.append("–")
            else:
                pairs, mean = loss
                cells.append(f"{pairs.text(3)}: {pairs.verdict(paired.LOSS_MARGIN * abs(mean))}")
        return cells


STUDIES = [EightBits(workload) for workload in workloads.WORKLOADS]
METHOD_HEADS = {"fp32": "f32", "gs": "gs, FP16", f"gs:{MIXED}": "gs, mixed", f"amax:history=16,margin=1,{MIXED}": "amax of 16 steps, margin 1, mixed",
         f"block:{MIXED},size=128": "blocks of 128, mixed", f"block:{MIXED}": "blocks of 32, mixed",
         f"block:{MIXED},scale=up": "blocks of 32, scale up, mixed"}


def differences(known):
    """Items of a list: for each method, the networks whose loss is shown to differ from that of f32."""
    summaries = {study.network: study.summary() for study in known}
    tests = sum(cell.endswith((": differs", ": no test", ": equal")) for cells in summaries.values() for cell in cells)
    lines = []
    for at, method in enumerate(METHODS[1:]):
        differs = [network for network, cells in summaries.items() if cells[at].endswith(": differs")]
        stopped = [network for network, cells in summaries.items() if cells[at].endswith("stopped")]
        parts = [f"{len(differs)} of {len(known)}" + (f" ({', '.join(differs)})" if differs else "")]
        parts += [f"given up: {', '.join(stopped)}"] if stopped else []
        lines.append(f"- {METHOD_HEADS[method]}: {'; '.join(parts)}")
    chance = f"With intervals of 95 %, about {tests / 20:.0f} of these {tests} differences would be shown if there were none."
    return "\n".join(lines) + f"\n\n{chance}"


def render():
    """docs/eight-bits.md, all of it."""
    known = [study for study in STUDIES if study.shown_rows()]
    missing = [study.network for study in STUDIES if not study.shown_rows()]
    def table(cells, methods=METHODS[1:]):
        heads = ["network", *(METHOD_HEADS[method] for method in methods)]
        rows = [f"| {' | '.join([study.network, *cells(study)])} |" for study in known]
        return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])

    text = f"""# Workloads in eight bits

Written by `scripts/eight_bits.py` from [science/eight-bits](science/eight-bits). Networks of [workloads.md](workloads.md) with the same data and settings, stored in 8 bits as the [guide](guide/eight-bits.md) describes: gradients in E5M2, activations and weights in E4M3 (*mixed*). Methods share weights, order and noise of each seed.

The table has the difference of the training loss to f32, as a mean over the second half of the steps, with its 95 % interval over seeds. *Equal* is a test of equality within {100 * paired.LOSS_MARGIN} % of the loss, fixed beforehand. *No test* means that these seeds could not have shown a difference of that size.

{table(EightBits.summary)}

Networks whose loss is shown to differ from that of f32:

{differences(known)}

Errors of the gradients of parameters after the last step, in percent: the median and the largest of the network's. They are relative to gradients in f32 of the same weights and batch, with a forward pass that stores halves. So they contain the roundings of activations and weights of 8 bits.

{table(EightBits.errors)}

Memory of activations and gradients between them, in MB, as the program allocates it. Blocks are simulated in f32.

{table(EightBits.memory, METHODS)}
"""
    if missing:
        text += f"\nPlanned and not run yet: {', '.join(missing)}.\n"
    family = None
    for study in known:
        if study.family != family:
            family = study.family
            text += f"\n## {family.capitalize()}\n"
        text += "\n" + study.part()
    return text


def main():
    asked = workloads.arguments(__doc__)
    if asked.data:
        for study in STUDIES:
            if not asked.only or study.network in asked.only:
                study.train_missing(asked.data, asked.results, asked.program.resolve(), METHODS, workloads.SEEDS, study.steps)
    (ROOT / "docs/eight-bits.md").write_text(render())


if __name__ == "__main__":
    main()
