"""MosaicML Streaming: MDS shards of 64 MB, its default shuffle (py1e), through a DataLoader."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source


class MosaicStreaming(Peer):
    key = "streaming"
    name = "MosaicML Streaming"
    shuffle = "py1e, its default: shards in random order, each sample moved at random within a window of shuffle_block_size samples."
    mixing = "buffer"
    requirements = ("mosaicml-streaming", "torch")
    modules = ("torch.utils.data", "streaming")
    workers = 0

    @classmethod
    def missing(cls) -> str | None:
        # Its package for images wants all of torchvision, which fails to import beside a PyTorch built for CPUs; bytes need none of it.
        sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
        return super().missing()

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        from streaming import MDSWriter

        with MDSWriter(out=str(out), columns={"data": "bytes"}, size_limit="64mb") as writer:
            for sample in source:
                writer.write({"data": sample})

    def open(self) -> None:
        import streaming
        from torch.utils.data import DataLoader

        logging.getLogger("streaming").setLevel(logging.ERROR)
        streaming.base.util.clean_stale_shared_memory()
        self.dataset = streaming.StreamingDataset(local=str(self.out), shuffle=True, batch_size=self.batch)
        self.loader = DataLoader(self.dataset, batch_size=self.batch, num_workers=self.workers, collate_fn=data_of)

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        return iter(self.loader)  # the data set counts the epochs and shuffles each anew


def data_of(samples: list[dict[str, bytes]]) -> list[bytes]:
    return [sample["data"] for sample in samples]


class MosaicStreaming2(MosaicStreaming):
    key = "streaming-2"
    name = "MosaicML Streaming, 2 workers"
    prepared_by = "streaming"
    workers = 2


PEERS = (MosaicStreaming, MosaicStreaming2)
