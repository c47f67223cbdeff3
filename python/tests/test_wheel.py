"""Metadata of the installed wheel."""

from importlib import metadata
from pathlib import Path

import gradscale
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def wheel():
    try:
        found = metadata.distribution("gradscale")
    except metadata.PackageNotFoundError:
        pytest.skip("gradscale is not installed from a wheel")
    if not Path(gradscale.__file__).samefile(found.locate_file("gradscale/__init__.py")):
        pytest.skip("gradscale is imported from the sources")
    return found


def test_both_licences_are_in_it(wheel):
    assert wheel.metadata["License-Expression"] == "MIT OR Apache-2.0"
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        assert name in wheel.metadata.get_all("License-File")
        assert wheel.read_text(f"licenses/{name}") == (ROOT / name).read_text(encoding="utf-8")


def test_it_has_types_and_no_tests(wheel):
    files = [str(file) for file in wheel.files]
    assert "gradscale/py.typed" in files and "gradscale/_gradscale.pyi" in files
    assert not any("test" in file for file in files) and wheel.version == gradscale.__version__
