"""One mapped array of all samples, gathered by index: the least that any reader could do where samples have one size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .base import Peer, Source


class MemoryMap(Peer):
    key = "memory-map"
    name = "memory-mapped array"
    shuffle = "A permutation of all rows each epoch (NumPy), gathered by the page cache's faults."
    mixing = "full"
    one_size_only = True
    bound = True

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        size = int(source.sizes[0])
        rows = np.lib.format.open_memmap(out / "set.npy", mode="w+", dtype=np.uint8, shape=(len(source), size))
        for i, sample in enumerate(source):
            rows[i] = np.frombuffer(sample, np.uint8)
        rows.flush()

    def open(self) -> None:
        self.rows = np.load(self.out / "set.npy", mmap_mode="r")

    def epoch(self, seed: int) -> Iterator[list[memoryview]]:
        order = np.random.default_rng(seed).permutation(len(self.rows))
        for first in range(0, len(order), self.batch):
            yield list(self.rows[order[first : first + self.batch]])  # indexing by a list copies

    def close(self) -> None:
        del self.rows


PEERS = (MemoryMap,)
