"""The table of phases, and which results on record are those of today's files."""
import csv
import hashlib
import pathlib
import subprocess
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = pathlib.Path(__file__).resolve().parent / "phases.tsv"


@dataclass(frozen=True)
class Phase:
    """Row of the table. `files` are the paths on which a result depends; `programs` and `data` are required by it."""

    name: str
    seconds: int
    limit: int
    programs: tuple
    data: tuple
    is_published: bool
    answers: str
    files: tuple


def words(cell):
    return () if cell == "-" else tuple(cell.split())


def load(path=TABLE):
    """The phases by name, the most important first."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        found = [
            Phase(
                row["name"], int(row["seconds"]), int(row["limit"]), words(row["programs"]), words(row["data"]),
                row["published"] == "yes", row["answers"], words(row["files"]),
            )
            for row in rows
        ]
    return {phase.name: phase for phase in found}


def digest(phase, commit="HEAD"):
    """A hash of the files of a phase at a commit. `None` if it depends on the machine alone, or the commit is unknown."""
    if not phase.files:
        return None
    listed = subprocess.run(["git", "ls-tree", "-r", commit, "--", *phase.files], cwd=ROOT, capture_output=True, text=True)
    return hashlib.sha1(listed.stdout.encode()).hexdigest()[:12] if listed.returncode == 0 else None
