"""DLFS, a deep-learning file system: shuffled mini-batches of many small samples, straight from the device.

::

    import dlfs

    ds = dlfs.mount("train.dlfs")
    ds[17]["image"], ds["train/cat/0001.jpg"]["label"]
    for batch in ds.batches(256, shuffle="chunk", seed=1, epoch=0):
        batch["image"], batch["label"], batch.ids

PyTorch's side is in :mod:`dlfs.torch`.
"""

from ._batch import Batch, Column, Sample
from ._batches import Batches
from ._core import version as __version__
from ._errors import (
    CorruptError,
    Error,
    ExistsError,
    ForkedError,
    IncompleteError,
    InvalidArgumentError,
    NotFoundError,
    SchemaError,
    TimeoutError,
)
from ._file import SampleFile
from ._schema import Field, Schema
from ._volume import Finding, Names, VerifyReport, Volume, mount
from ._writer import Writer, pack

__all__ = [
    "Batch",
    "Batches",
    "Column",
    "CorruptError",
    "Error",
    "ExistsError",
    "Field",
    "Finding",
    "ForkedError",
    "IncompleteError",
    "InvalidArgumentError",
    "Names",
    "NotFoundError",
    "Sample",
    "SampleFile",
    "Schema",
    "SchemaError",
    "TimeoutError",
    "VerifyReport",
    "Volume",
    "Writer",
    "__version__",
    "mount",
    "pack",
]
