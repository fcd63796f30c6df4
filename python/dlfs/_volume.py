"""A mounted volume: a sequence of samples by id, a mapping by name, and the source of mini-batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Union, overload

import numpy as np
import numpy.typing as npt

from . import _core
from ._batch import Batch, Sample, position, sample_of
from ._batches import Batches, State
from ._errors import Error, InvalidArgumentError, NotFoundError
from ._file import SampleFile
from ._options import OnError, Order, Shuffle, Tail, skips
from ._schema import Schema, decode_text, encode_text

Url = Union[str, "os.PathLike[str]"]
#: Several samples: a slice, or ids in any order, repeated or not.
Ids = Union[slice, Sequence[int], npt.NDArray[Any]]

_PIECE = 256  # samples or names fetched together where one iterates over all


@dataclass(frozen=True)
class Finding:
    """One fault that :meth:`Volume.verify` found. ``what`` is its kind, ``message`` says what is wrong, the others where."""

    what: str
    id: int | None
    name: str
    chunk: int
    device_offset: int
    message: str


@dataclass(frozen=True)
class VerifyReport:
    """What :meth:`Volume.verify` read and found. ``findings`` holds the first ones, ``findings_count`` says how many there are."""

    samples: int
    bytes: int
    bad_samples: int
    bad_chunks: int
    findings_count: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.findings_count == 0


class Names(Sequence[str]):
    """All names in id order, read from the volume when asked for: ``names[i]``, iteration, and ``in``."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def __len__(self) -> int:
        return len(self._volume)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self._volume.name(j) for j in range(*i.indices(len(self)))]
        return self._volume.name(i)

    def __iter__(self) -> Iterator[str]:
        core = self._volume._mounted()
        first, total = 0, core.size
        while first < total:
            piece = core.names(first, 16 * _PIECE)
            if not piece:  # a volume without names
                piece = [b""] * (total - first)
            yield from (decode_text(name) for name in piece)
            first += len(piece)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, bytes)) and name in self._volume


class Volume:
    """A mounted data set. Make one with :func:`dlfs.mount`.

    ``ds[17]`` and ``ds["train/cat/0001.jpg"]`` are samples: dicts of field name to a read-only memoryview (``bytes``), a str
    (``text``), a NumPy scalar, or a read-only array. ``ds[10:20]`` and ``ds[[5, 3, 5]]`` are a :class:`Batch`.

    May be used from any thread. A forked child goes on using it (it opens the devices anew); a pickle holds only the
    URL and mounts again, and refuses another volume than the one that was pickled.
    """

    def __init__(self, url: Url, *, timeout: float = 30.0, direct: bool = True) -> None:
        self._url = url_text(url)
        self._timeout = float(timeout)
        self._direct = bool(direct)
        if not 0 < self._timeout < 1e9:
            raise InvalidArgumentError(f"timeout is {timeout!r}, and must be a positive number of seconds")
        self._core: _core.Volume | None = _core.mount(encode_text(self._url), self._timeout, self._direct)
        self._schema = Schema._of_raw(self._core.schema())

    def _mounted(self) -> _core.Volume:
        if self._core is None:
            raise ValueError(f"{self._url} is closed: mount it again")
        return self._core

    # ---- what it is ----

    @property
    def url(self) -> str:
        return self._url

    @property
    def schema(self) -> Schema:
        """The fields by name, and ``schema.attributes``."""
        return self._schema

    @property
    def attributes(self) -> dict[str, str]:
        """Free-form facts about the data set."""
        return self._schema.attributes

    @property
    def classes(self) -> list[str]:
        """The names of the classes in label order (the attribute "classes"); empty where there are none."""
        names = self.attributes.get("classes", "")
        return names.split("\0") if names else []

    def stat(self) -> dict[str, Any]:
        """Facts about volume and mount; sizes in bytes: samples, chunks, payload_bytes, record_bytes, padding_bytes,
        index_bytes, name_bytes, directory_bytes (resident), mount_s, engine, notes, ..."""
        return self._mounted().info()

    def __len__(self) -> int:
        return self._mounted().size

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if self._core is None:
            return f"<dlfs.Volume {self._url!r}, closed>"
        return f"<dlfs.Volume {self._url!r}: {len(self)} samples of {self._schema}>"

    # ---- samples ----

    @overload
    def __getitem__(self, key: int | str | bytes) -> Sample: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, key: Ids) -> Batch: ...
    def __getitem__(self, key: int | str | bytes | Ids) -> Sample | Batch:
        """A sample by id (IndexError when there is none) or name (:class:`dlfs.NotFoundError`, a KeyError); a Batch for several."""
        if isinstance(key, (str, bytes)):
            id = self.find(key)
        elif hasattr(key, "__index__") and getattr(key, "ndim", 0) == 0:
            id = position(key, len(self))  # type: ignore[arg-type]
        else:
            return self.read(key)  # type: ignore[arg-type]
        return sample_of(self._mounted().read_one(id), 0, self._schema)

    def read(self, ids: Ids, *, on_error: OnError = "raise") -> Batch:
        """Reads several samples together, all requests in flight at once; the batch has them in the order asked.

        With ``on_error="skip"`` samples that are damaged are left out of it; ``batch.ids`` says which are there.
        """
        core = self._mounted()
        return Batch(core.read(id_array(ids, core.size), skips(on_error)), self._schema)

    def __iter__(self) -> Iterator[Sample]:
        """All samples in id order, a few hundred read at a time."""
        for first in range(0, len(self), _PIECE):
            yield from self.read(slice(first, first + _PIECE))

    def open(self, key: int | str | bytes, field: str | None = None) -> SampleFile:
        """One field of a sample as a raw binary file; by default the first ``bytes`` or ``text`` field."""
        core = self._mounted()
        id = self.find(key) if isinstance(key, (str, bytes)) else position(key, core.size)
        name = decode_text(encode_text(key)) if isinstance(key, (str, bytes)) else str(id)
        return SampleFile(core.open(id, self._field_to_open(field)), name)

    def _field_to_open(self, field: str | None) -> int:
        if field is not None:
            return self._schema.index(field)
        return next((i for i, each in enumerate(self._schema.fields) if each.kind != "tensor"), 0)

    # ---- names ----

    def find(self, name: str | bytes) -> int:
        """The id of a name. Raises :class:`dlfs.NotFoundError`."""
        core = self._mounted()
        try:
            return core.find(encode_text(name))
        except UnicodeEncodeError:
            raise NotFoundError(f"there is no sample named {name!r} in {self._url!r}: no name holds such a surrogate") from None

    def name(self, id: int) -> str:
        """The name of an id, empty where the volume has no names. Bytes that are not UTF-8 are as :func:`os.fsdecode` gives them."""
        core = self._mounted()
        return decode_text(core.name(position(id, core.size)))

    def names(self) -> Names:
        """All names in id order, not held in memory."""
        return Names(self)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, (str, bytes)):
            try:
                self.find(key)
            except (NotFoundError, InvalidArgumentError):  # invalid: too long to be a name
                return False
            return True
        return isinstance(key, (int, np.integer)) and 0 <= int(key) < len(self)

    # ---- batches ----

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: Shuffle = "chunk",
        seed: int = 0,
        epoch: int = 0,
        epochs: int | None = 1,
        rank: int = 0,
        ranks: int = 1,
        tail: Tail = "short",
        lanes: int = 240,
        window: int = 1,
        start_batch: int = 0,
        cache_bytes: int = 0,
        depth: int = 128,
        prefetch_batches: int = 0,
        on_error: OnError = "raise",
        verify: bool = True,
        state: State | None = None,
    ) -> Batches:
        """Mini-batches in an order that depends on nothing but these arguments and the volume.

        Args:
            batch_size: samples of a global batch, over all ranks together; ``ranks`` should divide it.
            shuffle: ``"chunk"`` (or True): whole chunks in random order, mixed from many lanes; ``"full"``: a permutation of
                all samples; ``"sequential"`` (or False, None): ids 0..n-1.
            seed, epoch: pick the order; the same on every machine and rank.
            epochs: goes on to the following epochs by itself; None: endless.
            rank, ranks: this process's share of every batch.
            tail: the last batch of an epoch, where it is not whole: ``"short"``, ``"drop"``, or ``"pad"`` (repeats samples,
                ``batch.padding`` says how many).
            lanes, window: of chunk mode; more of either mixes better and needs more memory. ranks must divide lanes.
            start_batch: begins there, at no cost.
            cache_bytes: memory for samples, a hard bound; batches that are still in use count. Only a sample larger than all
                of it gets memory of its own. 0: 256 MiB, or more (up to a quarter of the machine's) where the batches
                need it; ``stat()["memory_limit_bytes"]`` says how much.
            depth: device requests in flight.
            prefetch_batches: batches read ahead; 0: as many as the memory allows.
            on_error: ``"raise"``, or ``"skip"`` damaged samples and count them in ``stat()["skipped"]``.
            verify: False leaves the checksums unchecked (for measurements only).
            state: from :meth:`Batches.state`: goes on where it was taken, with its batch size, order and position (of the
                arguments above ``rank`` and ``ranks`` may differ from before; it ends where epoch + epochs ends).
        """
        order = Order(
            batch_size, shuffle, seed, epoch, epochs, rank, ranks, tail, lanes, window,
            start_batch, cache_bytes, depth, prefetch_batches, on_error, verify,
        )  # fmt: skip
        return Batches(self._mounted(), self._schema, order, state)

    def order(
        self,
        batch_size: int,
        *,
        shuffle: Shuffle = "chunk",
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        ranks: int = 1,
        tail: Tail = "short",
        lanes: int = 240,
        window: int = 1,
        start_batch: int = 0,
    ) -> Iterator[npt.NDArray[np.int64]]:
        """The ids that :meth:`batches` would give, batch by batch, without reading a sample. Arguments as there."""
        core = self._mounted()
        options = Order(batch_size, shuffle, seed, epoch, 1, rank, ranks, tail, lanes, window, start_batch).to_core()
        while piece := core.order(options, _PIECE):
            yield from (np.frombuffer(ids, np.uint32).astype(np.int64) for ids in piece)
            if len(piece) < _PIECE:
                return
            options["start_batch"] += len(piece)

    # ---- whole volume ----

    def verify(self, progress: Callable[[int, int], object] | None = None, *, most_findings: int = 1000) -> VerifyReport:
        """Reads and checks everything. ``progress(bytes done, bytes in all)`` is called a few times a second.

        Damage is no exception but a finding: look at ``report.ok``.
        """
        findings: list[Finding] = []

        def found(raw: _core.RawFinding) -> None:
            if len(findings) < most_findings:
                findings.append(Finding(*raw))

        return VerifyReport(*self._mounted().verify(found, progress), findings)

    def close(self) -> None:
        """Lets go of the volume. Batches and iterators made from it stay valid. Idempotent."""
        self._core = None

    def __enter__(self) -> Volume:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        info = self._mounted().info()
        return _remount, (self._url, self._timeout, self._direct, info["volume_id"], info["generation"])


def _remount(url: str, timeout: float, direct: bool, volume_id: str, generation: int) -> Volume:
    volume = Volume(url, timeout=timeout, direct=direct)
    info = volume.stat()
    if (info["volume_id"], info["generation"]) != (volume_id, generation):
        raise Error(f"{url} holds another volume than when it was pickled: it was packed anew meanwhile", code="foreign")
    return volume


def url_text(url: Url) -> str:
    """A path becomes absolute, so that a pickle of it means the same file everywhere on this machine."""
    if not isinstance(url, (str, os.PathLike)):
        raise InvalidArgumentError(f"a volume is given by a path or URL, not {url!r}")
    text = os.fspath(url)
    if isinstance(url, os.PathLike) or not (":" in text or "," in text):
        return os.path.abspath(text)
    return text


def id_array(ids: Ids, n: int) -> npt.NDArray[np.uint32]:
    """Ids as a uint32 array: negative ones count from the end. Raises IndexError, TypeError."""
    if isinstance(ids, slice):
        return np.arange(*ids.indices(n), dtype=np.uint32)
    if hasattr(ids, "__array__"):  # NumPy's and PyTorch's
        array = np.asarray(ids)
    else:
        array = np.asarray(ids if isinstance(ids, Sequence) else list(_iterable(ids)))
    if array.size == 0:
        return np.empty(0, np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        hints = {"b": "; numpy.flatnonzero(mask) makes ids of a mask", "U": "; find(name) gives the id of a name"}
        hint = hints.get(array.dtype.kind, "")
        raise TypeError(f"ids must be integers in one dimension, not {array.dtype} of shape {array.shape}{hint}")
    low, high = int(array.min()), int(array.max())
    if low < -n or high >= n:
        raise IndexError(f"id {low if low < -n else high} is out of range for {n} samples")
    if low < 0:
        array = array.astype(np.int64)
        array[array < 0] += n
    return np.ascontiguousarray(array, dtype=np.uint32)


def _iterable(ids: object) -> Iterable[Any]:
    if not isinstance(ids, Iterable):
        raise TypeError(f"samples are asked for by id, name, slice or a list of ids, not {ids!r}")
    return ids


def mount(url: Url, *, timeout: float = 30.0, direct: bool = True) -> Volume:
    """Mounts a volume: a file (``"train.dlfs"``), a block device (``"/dev/nvme1n1"``), or a namespace across a
    network (``"nvme-tcp://10.1.0.7:4420/NQN?nsid=1"``; docs/disaggregate.md lists the options).

    Args:
        timeout: seconds that a request to the device may take.
        direct: bypass the page cache where the file system can.

    Raises:
        NotFoundError: there is nothing.
        IncompleteError: a pack into it was never finished.
        CorruptError: it is damaged or cut short; the message says where.
        Error: it is no volume, or of a newer version, or cannot be read.
    """
    return Volume(url, timeout=timeout, direct=direct)
