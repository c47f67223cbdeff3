"""Tables of finished runs under docs/science, to which several processes may add rows at a time."""
import csv
import fcntl
import os


def read_rows(path):
    """Rows of a table by column, as text; none if there is no table yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add_rows(path, columns, key, rows):
    """Adds rows to a table, which stays sorted by `key`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock of the folder ends with its descriptor.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        merged = sorted(read_rows(path) + rows, key=key)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(merged)
    finally:
        os.close(folder)
