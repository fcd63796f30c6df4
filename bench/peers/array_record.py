"""ArrayRecord files read by Grain: a global shuffle of the indices, one random read a sample."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source

SHARD_BYTES = 256 << 20
SHARD_RECORDS = 10_000  # the cost of a read grows with the records of its file


class ArrayRecord(Peer):
    key = "array-record"
    name = "ArrayRecord, Grain"
    shuffle = "An index permutation of all samples each epoch (MapDataset.shuffle)."
    mixing = "full"
    requirements = ("grain", "array-record")
    modules = ("grain", "array_record.python.array_record_module")

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        from array_record.python import array_record_module

        shard, used, writer = 0, SHARD_BYTES, None
        for i, sample in enumerate(source):
            if used >= SHARD_BYTES or i % SHARD_RECORDS == 0:
                if writer is not None:
                    writer.close()
                # group_size:1 is what its documentation recommends for random access.
                writer, used = array_record_module.ArrayRecordWriter(str(out / f"set-{shard:05}.array_record"), "group_size:1"), 0
                shard += 1
            writer.write(sample)
            used += len(sample)
        if writer is not None:
            writer.close()

    def open(self) -> None:
        import grain

        paths = sorted(str(path) for path in self.out.glob("*.array_record"))
        self.source = grain.sources.ArrayRecordDataSource(paths)

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        import grain

        dataset = grain.MapDataset.source(self.source).shuffle(seed=seed).batch(self.batch, batch_fn=list)
        return iter(dataset.to_iter_dataset())


PEERS = (ArrayRecord,)
