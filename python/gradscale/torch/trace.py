"""Traces: the rows of every site in every step, in the format of this project's program."""

from __future__ import annotations

import json

import numpy as np

from .. import _gradscale
from .stores import EXPONENT


class Trace:
    """Writer of a trace, a line of JSON for each attempt at a step."""

    def __init__(self, path, method, under_way):
        self.method = _spelled(method)
        # Attempts whose rows began before this, without histograms.
        self._under_way = under_way
        # An existing file is not overwritten.
        self._file = open(path, "x", encoding="utf-8")

    def write(self, iteration, kind, sites, rows, order, activation=None):
        """Appends an attempt: the rows of the gradients that were stored in it, in that order, and their sites' decisions.
        `activation`: name and exponent of the store of the forward pass that made it fail, if one did."""
        if self._under_way:
            self._under_way -= 1
            return
        names, exponents, formats = sites.names, sites.exponents.tolist(), sites.formats
        seen = []
        for slot in order:
            words = rows[slot, :EXPONENT]
            end = int(words.nonzero()[0].max(initial=-1)) + 1
            exponent = int(rows[slot, EXPONENT].view(np.int32))
            site = {"name": names[slot], "exponent": exponent, "next": exponents[slot], "words": words[:end].tolist()}
            if formats[slot] != "fp16":
                site["format"] = formats[slot]
            seen.append(site)
        line = {"iteration": iteration, "skipped": kind == "skipped", "sites": seen}
        if kind == "repeat":
            line["repeated"] = True
        if activation is not None:
            line["activation"] = dict(zip(("site", "exponent"), activation))
        if self.method is not None:
            line["method"], self.method = self.method, None
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self):
        """Closes the trace file."""
        self._file.close()


def _spelled(method):
    """Adds the history to methods that have one, because old traces did not record it."""
    if "history" in method:
        return method
    try:
        _gradscale.Sites(f"{method},history=ring")
    except ValueError:
        return method
    return f"{method},history=ring"
