"""DLFS itself, through its Python package: memoryviews of the reader's memory, checksums verified, O_DIRECT."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source


class DlfsChunk(Peer):
    key = "dlfs-chunk"
    name = "DLFS, chunk"
    shuffle = (
        "Samples are placed at random when they are packed; each epoch takes all chunks (of 256 KiB with small samples) in random order, "
        "mixed from 240 lanes, and shuffles the samples within a lane's window."
    )
    mixing = "buffer"
    requirements = ("dlfs",)
    modules = ("dlfs",)

    prefetches_across_epochs = True

    mode = "chunk"
    resident = False
    rank, ranks = 0, 1

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        import dlfs

        mean = sum(source.sizes) / len(source)  # as docs/python.md says, and dlfs pack does by itself
        chunk_bytes = 256 << 10 if mean <= 30 << 10 else 1 << 20 if mean <= 500 << 10 else 64 << 10
        with dlfs.Writer(out / "set.dlfs", "data: bytes", names=False, chunk_bytes=chunk_bytes) as writer:
            for sample in source:
                writer.write({"data": sample})

    def open(self) -> None:
        import dlfs

        self.volume = dlfs.mount(self.out / "set.dlfs")
        self.batches = None
        # A user whose data set fits in memory gives the reader that memory; the default (0) is 256 MiB, or more for large batches.
        wanted = os.path.getsize(self.out / "set.dlfs") * 5 // 4 + (64 << 20)
        self.cache_bytes = max(256 << 20, wanted) if self.resident else 0

    def epoch(self, seed: int) -> Iterator[list[memoryview]]:
        if self.batches is None:  # it goes on to the following epochs by itself
            self.batches = self.volume.batches(
                self.batch, shuffle=self.mode, seed=1, epoch=seed, epochs=self.epochs, cache_bytes=self.cache_bytes,
                rank=self.rank, ranks=self.ranks,
            )  # fmt: skip
        for _ in range(self.batches.batches_per_epoch):
            yield list(next(self.batches)["data"])

    def close(self) -> None:
        if self.batches is not None:
            self.batches.close()
        self.volume.close()


class DlfsFull(DlfsChunk):
    key = "dlfs-full"
    name = "DLFS, full"
    shuffle = "An independent pseudo-random permutation of all samples each epoch."
    mixing = "full"
    mode = "full"
    prepared_by = "dlfs-chunk"


class DlfsChunkResident(DlfsChunk):
    key = "dlfs-chunk-resident"
    name = "DLFS, chunk, cache_bytes = data set"
    resident = True
    states = ("warm",)
    prepared_by = "dlfs-chunk"


class DlfsFullResident(DlfsFull):
    key = "dlfs-full-resident"
    name = "DLFS, full, cache_bytes = data set"
    resident = True
    states = ("warm",)
    prepared_by = "dlfs-chunk"


PEERS = (DlfsChunk, DlfsFull, DlfsChunkResident, DlfsFullResident)
