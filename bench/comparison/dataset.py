"""The data sets: generated samples, or the real JPEG files, kept once as one file of bytes and a table of offsets.

Sample i of a generated set is pseudo-random, so that nothing can be compressed or guessed, and the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LOGNORMAL_MEAN = 110 * KIB  # an ImageNet-like mix
LOGNORMAL_SIGMA = 0.6
ARCHIVE = "cifar10-images.tar.xz"


@dataclass(frozen=True)
class SetSpec:
    """A data set to make. size_bytes: of each sample; 0: log-normal; -1: the real JPEG files."""

    name: str
    title: str
    size_bytes: int
    count: int


@dataclass
class Sum:
    """What was delivered, whatever its order: compared with the same of the source."""

    samples: int = 0
    distinct: int = 0
    bytes: int = 0
    checksum: int = 0

    def same(self, other: Sum) -> bool:
        return asdict(self) == asdict(other)


class Summer:
    """Adds up samples: BLAKE2b of each one's bytes, summed modulo 2^64, and a count of distinct digests."""

    def __init__(self) -> None:
        self._sum = Sum()
        self._seen: set[int] = set()

    def add(self, sample: bytes | memoryview) -> None:
        digest = int.from_bytes(hashlib.blake2b(sample, digest_size=8).digest(), "little")
        self._seen.add(digest)
        self._sum.samples += 1
        self._sum.bytes += memoryview(sample).nbytes
        self._sum.checksum = (self._sum.checksum + digest) % 2**64

    def result(self) -> Sum:
        self._sum.distinct = len(self._seen)
        return self._sum


class StoredSource:
    """A data set on disk, in `folder`; or its first `count` samples."""

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder = folder
        offsets = np.load(folder / "offsets.npy")
        self.count = len(offsets) - 1 if count is None else min(count, len(offsets) - 1)
        self.offsets = offsets[: self.count + 1]
        self.sizes = np.diff(self.offsets)

    @property
    def total_bytes(self) -> int:
        return int(self.offsets[-1])

    @property
    def one_size(self) -> bool:
        return self.count > 0 and bool((self.sizes == self.sizes[0]).all())

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        with open(self.folder / "source.bin", "rb", buffering=1 << 20) as file:
            for size in self.sizes.tolist():
                yield file.read(size)

    def expected(self) -> Sum:
        """The sum over the samples, kept beside them once it is known."""
        cache = self.folder / f"sum-{self.count}.json"
        if cache.exists():
            return Sum(**json.loads(cache.read_text()))
        summer = Summer()
        for sample in self:
            summer.add(sample)
        result = summer.result()
        cache.write_text(json.dumps(asdict(result)))
        return result


def make(spec: SetSpec, folder: Path, archive: Path | None) -> StoredSource:
    """Makes the set in `folder` unless the same one is there."""
    stamp = folder / "spec.json"
    wanted = json.dumps(asdict(spec))
    if stamp.exists() and stamp.read_text() == wanted:
        return StoredSource(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    sizes = _write_archive(archive, folder, spec.count) if spec.size_bytes == -1 else _write_generated(spec, folder)
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64))
    stamp.write_text(wanted)
    return StoredSource(folder)


def _write_generated(spec: SetSpec, folder: Path) -> np.ndarray:
    random = np.random.Generator(np.random.PCG64(20190923 + max(spec.size_bytes, 0)))
    if spec.size_bytes:
        sizes = np.full(spec.count, spec.size_bytes, np.int64)
    else:
        location = np.log(LOGNORMAL_MEAN) - LOGNORMAL_SIGMA**2 / 2
        sizes = np.clip(random.lognormal(location, LOGNORMAL_SIGMA, spec.count), 4 * KIB, 2 * MIB).astype(np.int64)
    left = int(sizes.sum())
    with open(folder / "source.bin", "wb") as file:
        while left:
            piece = min(left, 8 * MIB)
            file.write(random.bytes(piece))
            left -= piece
    return sizes


def _write_archive(archive: Path | None, folder: Path, count: int) -> np.ndarray:
    if archive is None:
        raise FileNotFoundError(f"{ARCHIVE} is not there")
    sizes: list[int] = []
    with tarfile.open(archive) as tar, open(folder / "source.bin", "wb") as file:
        for member in tar:
            if len(sizes) == count:
                break
            if member.isfile():
                file.write(tar.extractfile(member).read())  # type: ignore[union-attr]
                sizes.append(member.size)
    return np.array(sizes, np.int64)
