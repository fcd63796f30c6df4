"""HDF5 through h5py: samples of one size as the rows of a data set, others back to back with a table of offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .base import Peer, Source

PIECE = 1024


class Hdf5(Peer):
    key = "hdf5"
    name = "HDF5"
    shuffle = "A permutation of all samples each epoch (NumPy), each read by its own slice."
    mixing = "full"
    requirements = ("h5py",)
    modules = ("h5py",)

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        import h5py

        offsets = np.concatenate([[0], np.cumsum(source.sizes)])
        with h5py.File(out / "set.h5", "w", libver="latest") as file:
            data = file.create_dataset("data", (int(offsets[-1]),), np.uint8)
            file.create_dataset("offsets", data=offsets)
            pending: list[bytes] = []
            first = 0
            for i, sample in enumerate(source):
                pending.append(sample)
                if len(pending) == PIECE or i == len(source) - 1 or offsets[i + 1] - offsets[first] > 64 << 20:
                    data[offsets[first] : offsets[i + 1]] = np.frombuffer(b"".join(pending), np.uint8)
                    pending, first = [], i + 1

    def open(self) -> None:
        import h5py

        self.file = h5py.File(self.out / "set.h5", "r")
        self.data = self.file["data"]
        self.offsets = self.file["offsets"][:].tolist()

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        count, data, offsets = len(self.offsets) - 1, self.data, self.offsets
        order = np.random.default_rng(seed).permutation(count)
        for first in range(0, count, self.batch):
            yield [data[offsets[i] : offsets[i + 1]].data for i in order[first : first + self.batch].tolist()]

    def close(self) -> None:
        self.file.close()


PEERS = (Hdf5,)
