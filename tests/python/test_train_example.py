"""examples/train_cifar10.py runs on a few images, and its arms differ in nothing but where the images come from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("dlfs")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples/train_cifar10.py"


def write_pictures(folder: Path, count: int) -> None:
    """Two classes that differ in colour, so that even a few steps tell them apart."""
    noise = np.random.default_rng(count)
    for name, colour in (("blue", (60, 60, 200)), ("red", (200, 60, 60))):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.clip(noise.normal(0, 25, (32, 32, 3)) + colour, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:03}.jpg")


def test_every_arm_learns(tmp_path):
    write_pictures(tmp_path / "data/train", 120)
    write_pictures(tmp_path / "data/test", 20)
    process = subprocess.run(
        [sys.executable, EXAMPLE, "--data", tmp_path / "data", "--work", tmp_path / "work",
         "--epochs", "2", "--batch-size", "24", "--seeds", "0", "1"],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # threads that wait for each other are slow on a busy machine
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stderr == ""
    assert "packed 240 files" in process.stdout
    rows = re.findall(r"^\| (folder|full|chunk) \| ([\d.]+) %, ([\d.]+) % \|", process.stdout, re.MULTILINE)
    assert [arm for arm, *_ in rows] == ["folder", "full", "chunk"]
    assert all(float(value) > 90 for _, *values in rows for value in values), rows
