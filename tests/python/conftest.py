"""Volumes for the tests of the Python package. Sample i's content is a function of i, so that a misplaced byte is noticed."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

dlfs = pytest.importorskip("dlfs", reason="the Python package is not built: ./dev build")

COUNT = 2000
DEADLINE_S = 240
CLASSES = ["cat", "dog", "owl"]


def image(i: int) -> bytes:
    """0 to 1.2 KB; sample 7 is empty and sample 11 larger than a chunk."""
    if i == 7:
        return b""
    length = 200_000 if i == 11 else 100 + i * 37 % 1100
    return (hashlib.sha256(b"%d" % i).digest() * (length // 32 + 1))[:length]


def sample(i: int) -> dict[str, Any]:
    return {
        "image": image(i),
        "label": i,
        "score": np.float32(i) / np.float32(8),
        "mask": np.full((3, 2), i % 2**16, np.uint16) + np.arange(6, dtype=np.uint16).reshape(3, 2),
        "caption": f"Bild {i} — 図",
    }


def name(i: int) -> str:
    return f"train/{CLASSES[i % 3]}/{i:05}.jpg"


def write(path: Path, count: int = COUNT, **options: Any) -> Path:
    options = {"chunk_bytes": 64 << 10, "attributes": {"classes": CLASSES, "origin": "made up"}, **options}
    with dlfs.Writer(path, **options) as writer:
        for i in range(count):
            writer.write(sample(i), name(i))
    return path


@pytest.fixture(autouse=True)
def deadline():
    """A test that hangs fails: every wait of the package can be interrupted by a signal."""

    def expired(number, frame):
        raise AssertionError(f"not done within {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def volume_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("volume") / "set.dlfs")


@pytest.fixture
def ds(volume_path: Path) -> Any:
    with dlfs.mount(volume_path) as volume:
        yield volume


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """make(count, **writer options) -> path of a new volume."""
    made = 0

    def make_one(count: int, **options: Any) -> Path:
        nonlocal made
        made += 1
        return write(tmp_path / f"made{made}.dlfs", count, **options)

    return make_one


@pytest.fixture(name="sample")
def sample_function() -> Any:
    return sample


@pytest.fixture(name="image")
def image_function() -> Any:
    return image


@pytest.fixture(name="name")
def name_function() -> Any:
    return name
