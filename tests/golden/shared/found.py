"""Boxes that a network found in pictures, with the ground truth, as rows of numbers: real data for average
precision."""

import csv
import os
import xml.etree.ElementTree

import numpy

# Number of pictures, and of boxes with the highest scores in each.
PICTURES, LIKELIEST = 8, 20


def of_files(directory, table, pictures=PICTURES, likeliest=LIKELIEST):
    """Reads a directory in PASCAL VOC's layout, and the boxes.tsv of `gradscale predict` on its test pictures.
    Returns the truths (image, class, corners) and the found boxes (image, class, score, corners). VOC counts pixels
    from 1, and the last are inside."""
    with open(os.path.join(directory, "ImageSets/Main/test.txt"), encoding="utf-8") as file:
        names = file.read().split()[:pictures]
    truths, classes = [], set()
    for image, name in enumerate(names):
        root = xml.etree.ElementTree.parse(os.path.join(directory, f"Annotations/{name}.xml")).getroot()
        for one in root.iter("object"):
            left, top, right, bottom = (float(one.find(f"bndbox/{side}").text) for side in ["xmin", "ymin", "xmax", "ymax"])
            classes.add(one.find("name").text)
            truths.append([image, one.find("name").text, left - 1.0, top - 1.0, right, bottom])
    numbers = {name: number for number, name in enumerate(sorted(classes), 1)}
    found = {image: [] for image in range(len(names))}
    with open(table, encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            name = os.path.splitext(os.path.basename(row["image"]))[0]
            if name in names and row["class"] in numbers:
                image = names.index(name)
                corners = [float(row[side]) for side in ["left", "top", "right", "bottom"]]
                found[image].append([image, numbers[row["class"]], float(row["score"]), *corners])
    # The table has few digits. Equal scores are made distinct, because their order affects the result and is not
    # defined.
    known = set()
    for row in (row for rows in found.values() for row in rows):
        while row[2] in known:
            row[2] = round(row[2] - 1e-6, 6)
        known.add(row[2])
    best = [sorted(rows, key=lambda row: -row[2])[:likeliest] for rows in found.values()]
    return [[image, numbers[name], *corners] for image, name, *corners in truths], [row for rows in best for row in rows]


def of_table(path, case):
    """Reads the boxes of a case of boxes.txt."""
    with open(path, encoding="utf-8") as file:
        rows = dict(line.rstrip("\n").split("\t")[1::2] for line in file if line.startswith(f"{case}\t"))
    split = lambda key, width: [[float(x) for x in row] for row in zip(*[iter(rows[key].split())] * width)]
    return split("truths", 6), split("found", 7)


def average_precision(truths, found):
    """Average precision of each class by another package, at eleven recalls and below the curve."""
    from mean_average_precision import MetricBuilder

    classes = int(max(row[1] for row in truths))
    metric = MetricBuilder.build_evaluation_metric("map_2d", async_mode=False, num_classes=classes)
    for image in sorted({row[0] for row in truths + found}):
        # The package counts pixels: right and bottom are the last ones inside.
        inside = lambda corners: [*corners[:2], *(side - 1.0 for side in corners[2:])]
        truth = [[*inside(row[2:]), row[1] - 1, 0, 0] for row in truths if row[0] == image]
        seen = [[*inside(row[3:]), row[1] - 1, row[2]] for row in found if row[0] == image]
        metric.add(numpy.array(seen, dtype=float).reshape(-1, 6), numpy.array(truth, dtype=float).reshape(-1, 7))
    results = {}
    for key, recalls in [("area", None), ("eleven", numpy.array([tenth / 10 for tenth in range(11)]))]:
        value = metric.value(iou_thresholds=0.5, recall_thresholds=recalls)
        results[key] = [float(value[0.5][number]["ap"]) for number in range(classes)]
    return results
