"""Reads a training's event files with TensorBoard's own reader and compares them with the training's log.

check.py DIRECTORY: of `gradscale train`, stopped and resumed at least once.
"""

import json
import math
import struct
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

directory = Path(sys.argv[1])
log = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
assert [entry["iteration"] for entry in log] == list(range(1, len(log) + 1)), "the log has every step once"

reader = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
reader.Reload()


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def scalars(tag):
    """Step and value; every step once, those that a resume did again not twice."""
    return [(event.step, event.value) for event in reader.Scalars(tag)]


compared = 0


def same(tag, expected):
    global compared
    expected = [(step, f32(value)) for step, value in expected]
    assert scalars(tag) == expected, f"{tag}: {scalars(tag)[:3]} … for {expected[:3]} …"
    compared += len(expected)


same("train/loss", [(e["iteration"], e["loss"]) for e in log])
same("train/skipped", [(e["iteration"], float("skipped" in e)) for e in log])
for score in ("miou", "class_accuracy", "global_accuracy"):
    for tag, key in (("test", "scores"), ("validation", "validation")):
        same(f"{tag}/{score}", [(e["iteration"], e[key][score]) for e in log if key in e])

names = [site["name"] for site in log[0]["sites"]]
sampled = [e for e in log if e.get("sites")]
assert len(names) > 10 and len(sampled) > 2
histograms = 0
for number, name in enumerate(names):
    site = [(e["iteration"], e["sites"][number]) for e in sampled]
    assert all(one["name"] == name for _, one in site)
    for key in ("alpha", "gamma_measured", "subnormal_share", "overflows"):
        same(f"{key}/{name}", [(step, float(one[key])) for step, one in site])
    for key, tag in (("amax", "log2_amax"), ("gamma_predicted", "gamma_predicted")):
        same(f"{tag}/{name}", [(step, one[key]) for step, one in site if one[key] is not None])
    events = reader.Histograms(f"log2_magnitude/{name}")
    expected = [(step, one["histogram"]) for step, one in site if one.get("histogram")]
    assert [event.step for event in events] == [step for step, _ in expected], name
    for event, (_, histogram) in zip(events, expected):
        value, counts = event.histogram_value, histogram["counts"]
        assert list(value.bucket) == counts and value.num == sum(counts), name
        limits = [histogram["first"] + i for i in range(len(counts))]
        assert list(value.bucket_limit) == limits and value.max == limits[-1] and value.min == limits[0] - 1, name
        mean = sum(n * (limit - 0.5) for n, limit in zip(counts, limits)) / sum(counts)
        assert math.isclose(value.sum / value.num, mean, rel_tol=1e-12), name
        histograms += 1
assert histograms > 2 * len(names)
print(f"{compared} scalars and {histograms} histograms of {len(names)} sites are those of the log")
