"""``pytest --device cuda``: tests that take the fixture `device` run there; the others run on the CPU as always."""

import os

import pytest


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", choices=("cpu", "cuda"), help="where tests that can use a GPU run")


def pytest_configure(config):
    # Read when cuBLAS starts: with it, equal calls have equal bits.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="session")
def device(request):
    """The device of ``--device``."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    name = request.config.getoption("--device")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("--device cuda: PyTorch sees no CUDA device on this machine")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)
