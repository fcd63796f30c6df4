"""The package passes mypy --strict, and so does code that uses it as documented."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("mypy", reason="mypy is not installed")

USE = """
import numpy as np
import dlfs

ds: dlfs.Volume = dlfs.mount("train.dlfs", timeout=3)
label: int = int(ds[17]["label"])
with ds.batches(256, shuffle="chunk", seed=1, epochs=None) as batches:
    for batch in batches:
        ids: np.ndarray = batch.ids
        blobs: list[bytes] = batch["image"].tolist()
        state: bytes = batches.state()
with dlfs.Writer("x.dlfs", {"image": bytes, "label": "int64"}, attributes={"classes": ["a"]}) as writer:
    number: int = writer.write({"image": b"", "label": 1}, "name")
try:
    ds["absent"]
except dlfs.NotFoundError as error:
    code: str = error.code
part: dlfs.Batch = ds[3:5]
ds.batches(1, shuffle="nonsense")  # type: ignore[arg-type]
"""


def mypy(*arguments: object, cwd: Path) -> None:
    process = subprocess.run([sys.executable, "-m", "mypy", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stdout + process.stderr


def test_the_package_is_strictly_typed(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: dlfs.torch cannot be checked")
    mypy("--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path, cwd=ROOT)


def test_its_users_see_the_types(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    mypy("--strict", "--cache-dir", tmp_path / "cache", "use.py", cwd=tmp_path)


def test_the_stub_names_what_the_extension_has():
    core = pytest.importorskip("dlfs._core")
    stub = (ROOT / "python/dlfs/_core.pyi").read_text()
    for name, item in vars(core).items():
        if name.startswith("_"):
            continue
        assert f" {name}" in stub or stub.startswith(name) or f"\n{name}" in stub, name
        for member in vars(item) if isinstance(item, type) else ():
            assert member.startswith("_") or f"def {member}(" in stub, f"{name}.{member}"
