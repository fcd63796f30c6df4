"""LMDB: one read-only environment, a look-up by key for each sample, without its read-ahead (as advised for random reads)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .base import Peer, Source

COMMIT_EVERY = 20_000


class Lmdb(Peer):
    key = "lmdb"
    name = "LMDB"
    shuffle = "A permutation of all keys each epoch (NumPy)."
    mixing = "full"
    requirements = ("lmdb",)
    modules = ("lmdb",)

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        import lmdb

        size = int(source.sizes.sum()) + len(source) * 8192
        env = lmdb.open(str(out / "env"), map_size=2 * size + (64 << 20), sync=False, meminit=False)
        transaction = env.begin(write=True)
        for i, sample in enumerate(source):
            transaction.put(struct.pack(">I", i), sample, append=True)
            if i % COMMIT_EVERY == COMMIT_EVERY - 1:
                transaction.commit()
                transaction = env.begin(write=True)
        transaction.commit()
        env.sync(True)
        env.close()

    def open(self) -> None:
        import lmdb

        self.env = lmdb.open(str(self.out / "env"), readonly=True, lock=False, readahead=False, meminit=False)
        self.count = self.env.stat()["entries"]

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        order = np.random.default_rng(seed).permutation(self.count).astype(">u4").tobytes()
        keys = [order[i : i + 4] for i in range(0, len(order), 4)]
        with self.env.begin() as transaction:
            get = transaction.get
            for first in range(0, self.count, self.batch):
                yield [get(key) for key in keys[first : first + self.batch]]

    def close(self) -> None:
        self.env.close()


PEERS = (Lmdb,)
