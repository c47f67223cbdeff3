"""Types of the public interface: nothing is without them, the extension's are those that are there, and a program that uses
all of it passes a strict check."""

import dataclasses
import inspect
import os
import subprocess
import sys
from pathlib import Path

import gradscale
import pytest

#: Type checkers read all of PyTorch, which takes half a minute.
needs_all = pytest.mark.skipif("GRADSCALE_ALL" not in os.environ, reason="only with --all")


def untyped(name, function):
    """Yields the parameters of a function that have no type, and ``return``; the first of a method needs none."""
    signature = inspect.signature(function)
    for parameter in list(signature.parameters.values()):
        if parameter.annotation is inspect.Parameter.empty and parameter.name not in ("self", "cls"):
            yield f"{name}: {parameter.name}"
    if signature.return_annotation is inspect.Signature.empty:
        yield f"{name}: return"


def untyped_members(thing):
    """Yields what has no type in a function, or in the public methods and properties that a class defines itself."""
    if inspect.isfunction(thing):
        yield from untyped(thing.__name__, thing)
        return
    for base in thing.__mro__:
        if not base.__module__.startswith("gradscale.torch"):
            continue
        for name, member in vars(base).items():
            member = member.fget if isinstance(member, property) else member
            generated = name == "__init__" and dataclasses.is_dataclass(base)
            if inspect.isfunction(member) and (not name.startswith("_") or name == "__init__") and not generated:
                yield from untyped(f"{base.__name__}.{name}", member)


def test_everything_public_has_types():
    torch = pytest.importorskip("gradscale.torch", reason="torch is not installed")
    from gradscale.torch import ddp

    things = [getattr(torch, name) for name in torch.__all__] + [ddp.ScaledFp16State, ddp.scaled_fp16_hook]
    # Its overloads have the types. A gradient is created by the package alone, and is a tensor otherwise.
    known = {"GradScaler.scale: outputs", "GradScaler.scale: return"}
    found = {line for thing in things for line in untyped_members(thing)}
    assert {line for line in found if not line.startswith("ScaledTensor.__init__")} == known


def test_the_check_of_types_finds_what_has_none():
    def partly(x: int, y, *rest) -> None:
        return None

    def untold(x: int):
        return x

    assert list(untyped_members(partly)) == ["partly: y", "partly: rest"]
    assert list(untyped_members(untold)) == ["untold: return"]


def check(*words):
    # No folder of the tests is the current one, so that the package on the path is checked. mypy reads no PYTHONPATH.
    environment = {**os.environ, "MYPYPATH": str(Path(gradscale.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment, cwd=Path(__file__).parent)
    assert result.returncode == 0, result.stdout + result.stderr


@needs_all
def test_the_types_of_the_extension_are_those_that_are_there():
    pytest.importorskip("mypy", reason="mypy is not installed")
    check("mypy.stubtest", "gradscale._gradscale", "--concise")


@needs_all
def test_a_program_that_uses_everything_is_typed():
    pytest.importorskip("mypy", reason="mypy is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    # The package itself is not checked, only what it promises.
    check("mypy", "--strict", "--follow-imports=silent", "--cache-dir", os.devnull, "typed_use.py")
