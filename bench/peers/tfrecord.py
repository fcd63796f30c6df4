"""TFRecord files read by tf.data: files interleaved, a shuffle buffer, prefetching, as TensorFlow's guide has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source

SHARD_BYTES = 100 << 20  # the guide recommends files of about 100 MB
BUFFER_BYTES = 128 << 20


class TfRecord(Peer):
    key = "tfrecord"
    name = "TFRecord, tf.data"
    shuffle = "Files of 100 MB in random order, four read by turns, then a buffer of 10,000 samples (at most 128 MB) to draw from."
    mixing = "buffer"
    requirements = ("tensorflow-cpu",)
    modules = ("tensorflow",)

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        import tensorflow as tf

        shard, used, writer = 0, SHARD_BYTES, None
        for sample in source:
            if used >= SHARD_BYTES:
                if writer is not None:
                    writer.close()
                writer, used = tf.io.TFRecordWriter(str(out / f"set-{shard:05}.tfrecord")), 0
                shard += 1
            writer.write(sample)
            used += len(sample)
        if writer is not None:
            writer.close()
        mean = max(1, int(source.sizes.sum()) // len(source))
        (out / "buffer").write_text(str(max(16, min(10_000, BUFFER_BYTES // mean))))

    def open(self) -> None:
        self.files = sorted(str(path) for path in self.out.glob("*.tfrecord"))
        self.buffer = int((self.out / "buffer").read_text())

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        import tensorflow as tf

        files = tf.data.Dataset.from_tensor_slices(self.files).shuffle(len(self.files), seed=seed)
        records = files.interleave(
            tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
        batches = records.shuffle(self.buffer, seed=seed).batch(self.batch).prefetch(tf.data.AUTOTUNE)
        return (batch.tolist() for batch in batches.as_numpy_iterator())


PEERS = (TfRecord,)
