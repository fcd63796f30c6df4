"""WebDataset: tar shards, shuffled shards, a shuffle buffer of 1,000 samples (the values of its documentation)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source


class WebDataset(Peer):
    key = "webdataset"
    name = "WebDataset"
    shuffle = "Tar shards in random order (shardshuffle=100), then a buffer of 1,000 samples from which one is drawn at random."
    mixing = "buffer"
    requirements = ("webdataset",)
    modules = ("webdataset",)
    workers = 0

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        import webdataset

        with webdataset.ShardWriter(str(out / "set-%06d.tar"), maxcount=10_000, maxsize=64 << 20, verbose=0) as sink:
            for i, sample in enumerate(source):
                sink.write({"__key__": f"{i:09}", "bin": sample})

    def open(self) -> None:
        self.shards = sorted(str(path) for path in self.out.glob("*.tar"))

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        import webdataset

        pipeline = webdataset.WebDataset(self.shards, shardshuffle=100, seed=seed).shuffle(1000, seed=seed).to_tuple("bin")
        batches = pipeline.batched(self.batch, collation_fn=None)
        if self.workers:  # each takes whole shards, and makes batches of its own
            batches = webdataset.WebLoader(batches, batch_size=None, num_workers=self.workers)
        return ([sample for (sample,) in batch] for batch in batches)


class WebDataset2(WebDataset):
    key = "webdataset-2"
    name = "WebDataset, 2 workers"
    requirements = ("webdataset", "torch")
    modules = ("webdataset", "torch.utils.data")
    prepared_by = "webdataset"
    workers = 2


PEERS = (WebDataset, WebDataset2)
