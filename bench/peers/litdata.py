"""LitData: chunks of 64 MB written by optimize(), StreamingDataset(shuffle=True), its own StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source


class LitData(Peer):
    key = "litdata"
    name = "LitData"
    shuffle = "Chunks of 64 MB in random order, and the samples within each chunk shuffled."
    mixing = "buffer"
    requirements = ("litdata", "torch")
    modules = ("torch.utils.data", "litdata")
    workers = 0

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        # What optimize() does for each of its worker processes, without starting one.
        from litdata.streaming import Cache

        cache = Cache(str(out), chunk_bytes="64MB")
        for i, sample in enumerate(source):
            cache[i] = sample
        cache.done()
        cache.merge()

    def open(self) -> None:
        import litdata

        self.dataset = litdata.StreamingDataset(str(self.out), shuffle=True, drop_last=False)
        self.loader = litdata.StreamingDataLoader(self.dataset, batch_size=self.batch, num_workers=self.workers, collate_fn=copies)

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        return iter(self.loader)  # the loader counts the epochs and shuffles each anew


def copies(samples: list[memoryview]) -> list[bytes]:
    """Its samples are views of a mapped file, whose bytes need not be in memory yet."""
    return [bytes(sample) for sample in samples]


class LitData2(LitData):
    key = "litdata-2"
    name = "LitData, 2 workers"
    prepared_by = "litdata"
    workers = 2


PEERS = (LitData, LitData2)
