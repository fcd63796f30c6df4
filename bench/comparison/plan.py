"""What one run of the comparison does: the data sets, how often and how long."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .dataset import ARCHIVE, GIB, KIB, LOGNORMAL_MEAN, MIB, SetSpec

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Plan:
    """Everything that the command line decides. seconds: the most that one measurement takes."""

    work: Path
    out: Path
    dlfs: Path
    sets: list[SetSpec]
    peers: list[str]
    rounds: int
    seconds: float
    opening_samples: int
    quick: bool
    archive: Path | None
    batch: int = 256
    dlfs_repeats: int = 3
    keep: bool = False
    keep_cache: bool = False
    parts: tuple[str, ...] = ("peers", "device", "ranks", "open", "engine")
    skipped: list[str] = field(default_factory=list)


def find_archive() -> Path | None:
    """The real JPEG files: in DLFS_TEST_DATA, else ../shared/data."""
    path = Path(os.environ.get("DLFS_TEST_DATA") or ROOT.parent / "shared" / "data") / ARCHIVE
    return path if path.exists() else None


def known_sets(set_bytes: int, quick: bool, most: int | None = None) -> dict[str, SetSpec]:
    """Every data set by name, of at most set_bytes bytes and `most` samples."""
    most = most or (100_000 if quick else 1 << 20)

    def of(size: int) -> int:
        return max(16, min(most, set_bytes // size))

    sizes = {"512B": 512, "4KiB": 4 * KIB, "16KiB": 16 * KIB, "128KiB": 128 * KIB, "1MiB": MIB, "3MiB": 3 * MIB}
    found = {"jpeg": SetSpec("jpeg", "CIFAR-10 as JPEG files (mean 921 B)", -1, min(most, 60_000))}
    for name, size in sizes.items():
        found[name] = SetSpec(name, f"{name.replace('KiB', ' KiB').replace('MiB', ' MiB').replace('512B', '512 B')}", size, of(size))
    found["lognormal"] = SetSpec("lognormal", "log-normal, mean 110 KiB", 0, of(LOGNORMAL_MEAN))
    return found


QUICK_SETS = ("jpeg", "512B", "128KiB")
QUICK_LEAVES_OUT = ("files-loader-1", "dlfs-full-resident", "webdataset-2", "streaming-2", "litdata-2")
FULL_BYTES, QUICK_BYTES = GIB, 128 * MIB
