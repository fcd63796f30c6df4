"""PyTorch on DLFS: :class:`Dataset` (map-style, for ``DataLoader`` and its worker processes) and :class:`Loader` (whole batches).

Take :class:`Loader` where the order matters: it reads ahead in shuffled order, resumes in the middle of an epoch, and needs
no worker processes to read. Take :class:`Dataset` where a heavy transform in Python needs worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Optional

import numpy as np
import torch
import torch.utils.data

from ._batch import Batch, Sample
from ._batches import Batches
from ._errors import CorruptError, InvalidArgumentError
from ._options import OnError, Order, Shuffle, Tail, unsigned
from ._schema import Field
from ._volume import Url, Volume, mount

Transform = Optional[Callable[[Sample], Any]]
Collate = Optional[Callable[[list[Any]], Any]]
_SHUFFLES = ("sequential", "full", "chunk")  # by their number in dlfs._core


class Dataset(torch.utils.data.Dataset[Any]):
    """The samples of a volume by id: ``len(dataset)``, ``dataset[i]``, and whole lists of ids read together.

    Args:
        source: a mounted volume, or a path or URL.
        transform: called with each sample, a dict of field name to value: a read-only memoryview for ``bytes`` fields (it goes
            as it is into ``io.BytesIO``, so that ``PIL.Image.open(io.BytesIO(sample["image"]))`` decodes it), a str, a NumPy scalar
            or array, a tensor where the field is bfloat16. What it returns is the item.

    Without a transform, or where one leaves them in a dict, memoryviews become ``bytes`` and uint64 scalars tensors, so that
    items can be collated and sent between processes. Picklable (by URL); works in ``DataLoader`` workers under fork and spawn.
    """

    def __init__(self, source: Volume | Url, transform: Transform = None) -> None:
        self.volume = source if isinstance(source, Volume) else mount(source)
        self.transform = _called("transform", transform)
        self._bfloat16 = _bfloat16_fields(self.volume)

    def __len__(self) -> int:
        return len(self.volume)

    def __getitem__(self, id: int | str) -> Any:
        if isinstance(id, (slice, list)):
            raise TypeError(f"an item is asked for by id or name, not {id!r}; __getitems__(ids) gives several")
        return _item(self.volume[id], self.transform, self._bfloat16)

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """The items of several ids, whose reads are all in flight together. ``DataLoader`` calls this for each batch."""
        return [_item(sample, self.transform, self._bfloat16) for sample in self.volume.read(ids)]

    @property
    def classes(self) -> list[str]:
        return self.volume.classes


class Loader(torch.utils.data.IterableDataset[Any]):
    """Batches for training, in shuffled order, read ahead: iterate it once an epoch.

    It takes the place of a ``DataLoader`` and needs none. Where something insists on one, it is
    ``DataLoader(loader, batch_size=None)``, without workers.

    Each iteration is the next epoch with an order of its own; :meth:`set_epoch` is needed only to jump. Without
    ``transform`` and ``collate_fn`` a batch is a dict: a tensor of shape (n, \\*shape) for each tensor field, a list of ``bytes``
    or ``str`` for the others.

    Args:
        source: a mounted volume, or a path or URL.
        batch_size: samples of a *global* batch: each of ``ranks`` processes gets ``batch_size / ranks`` of them.
        shuffle: ``"chunk"`` (or True), ``"full"``, or ``"sequential"`` (or False); see :meth:`dlfs.Volume.batches`, as for
            lanes, window, cache_bytes, depth, prefetch_batches and on_error.
        seed, epoch: pick the order; ``epoch`` is that of the first iteration.
        rank, ranks: this process's share. Left out, they come from ``torch.distributed`` where it is initialised.
        drop_last: leaves out the last batch where it is not whole. Otherwise it is short, or, where there are several ranks,
            padded with repeats so that all ranks do equal work; ``tail`` overrides that.
        transform: called with each sample (as for :class:`Dataset`).
        collate_fn: makes a batch from the list of samples; by default PyTorch's ``default_collate`` where there is a transform.
        on_error: with ``"skip"`` a batch lacks its damaged samples. One of which nothing is left is left out; with several ranks,
            which must take equally many steps, it is a :class:`dlfs.CorruptError`.
        threads: threads that call ``transform``, 0 for none. They help where it releases the GIL (image decoders do).
        pin_memory: puts tensors into pinned memory, for asynchronous copies to a GPU. Ignored without CUDA.
    """

    def __init__(
        self,
        source: Volume | Url,
        batch_size: int,
        *,
        shuffle: Shuffle = "chunk",
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        drop_last: bool = False,
        tail: Tail | None = None,
        transform: Transform = None,
        collate_fn: Collate = None,
        threads: int = 0,
        pin_memory: bool = False,
        lanes: int = 240,
        window: int = 1,
        cache_bytes: int = 0,
        depth: int = 128,
        prefetch_batches: int = 0,
        on_error: OnError = "raise",
    ) -> None:
        self.volume = source if isinstance(source, Volume) else mount(source)
        rank, ranks = _share(rank, ranks)
        tail = tail or ("drop" if drop_last else "short" if ranks == 1 else "pad")
        self._order = Order(
            batch_size, shuffle, seed, epoch, None, rank, ranks, tail, lanes, window,
            0, cache_bytes, depth, prefetch_batches, on_error,
        )  # fmt: skip
        self._core_order = self._order.to_core()  # checks it
        self.transform = _called("transform", transform)
        self.collate_fn = _called("collate_fn", collate_fn)
        self.threads = unsigned("threads", threads, 1024)
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self._bfloat16 = _bfloat16_fields(self.volume)
        # The next batch to hand out. Fresh: nothing was handed out since it was set, so that the next iteration begins there.
        self._position = (self._order.epoch, 0)
        self._fresh = True
        self._turn = 0  # of the newest iteration: an older one must not go on
        self._batches: Batches | None = None
        self._batches_at = (0, 0)
        self._process = os.getpid()

    def __len__(self) -> int:
        """Batches an epoch; the same on every rank."""
        n, size = len(self.volume), self._order.batch_size
        return n // size if self._order.tail == "drop" else -(-n // size)

    @property
    def epoch(self) -> int:
        """The epoch under way, or the next one between epochs."""
        return self._position[0]

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch. It keeps a position within it that :meth:`load_state_dict` set."""
        epoch = unsigned("epoch", epoch)
        if not (self._fresh and self._position[0] == epoch):
            self._position = (epoch, 0)
        self._fresh = True

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch lies: what was handed out so far counts, what was read ahead does not. Plain numbers and strings."""
        return {"dlfs": 1, "epoch": self._position[0], "batch": self._position[1], **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state was taken, with the batches that the interrupted run would have got.

        ``rank`` and ``ranks`` may differ from then. Raises :class:`dlfs.InvalidArgumentError` when the data set or an argument
        that decides the order differs.
        """
        if not isinstance(state, Mapping) or state.get("dlfs") != 1:
            raise InvalidArgumentError("this is not a state that Loader.state_dict() gave")
        for key, mine in self._identity().items():
            if state.get(key) != mine:
                raise InvalidArgumentError(f"the state was taken with {key}={state.get(key)!r}, and this loader has {key}={mine!r}")
        self._position = (unsigned("epoch", state.get("epoch")), unsigned("batch", state.get("batch"), len(self)))
        self._fresh = True

    def stat(self) -> dict[str, Any]:
        """Counters of the reader (see :meth:`dlfs.Batches.stat`); empty before the first iteration."""
        return {} if self._batches is None else self._batches.stat()

    def close(self) -> None:
        """Stops reading ahead and gives the memory back. The next iteration starts it again."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("a dlfs Loader reads ahead by itself: iterate it directly, and give DataLoader a dlfs Dataset")
        if not self._fresh:
            self._position = (self._position[0] + 1, 0)
        self._fresh = False
        self._turn += 1
        return self._iterate(self._turn)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}

    # ---- inside ----

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a position to mean the same batches."""
        info = self.volume.stat()
        order = {key: self._core_order[key] for key in ("seed", "lanes", "window")}
        # Tails that keep the last batch differ in nothing but how long it is, and the default depends on the ranks.
        order |= {"shuffle": _SHUFFLES[self._core_order["mode"]], "drop_last": self._order.tail == "drop"}
        return {"batch_size": self._order.batch_size, **order, "volume": info["volume_id"], "generation": info["generation"]}

    def _iterate(self, turn: int) -> Iterator[Any]:
        (epoch, first), count = self._position, len(self)
        pool = ThreadPoolExecutor(self.threads) if self.threads and self.transform else None
        try:
            for number in range(first, count):
                if turn != self._turn:
                    raise RuntimeError("another iteration of this Loader has begun: only the newest can go on")
                batch = self._next_batch(epoch, number)
                output = self._output(batch, pool) if len(batch) else None
                self._position = (epoch, number + 1)
                if len(batch):
                    yield output
                elif self._order.ranks > 1:
                    raise CorruptError(
                        f"all samples of batch {number} of epoch {epoch} that fall to rank {self._order.rank} are damaged and were "
                        "skipped, so that this rank would take a step less than the others; use larger batches, or restore the volume"
                    )
        finally:
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        if turn == self._turn:
            self._position = (epoch + 1, 0)
            self._fresh = True

    def _next_batch(self, epoch: int, number: int) -> Batch:
        """One reader serves epoch after epoch, so that it reads ahead across their ends; a jump opens a new one."""
        if self._process != os.getpid():
            self._process, self._batches = os.getpid(), None
        if self._batches is None or self._batches_at != (epoch, number):
            self.close()
            order = replace(self._order, epoch=epoch, start_batch=number)
            self._batches = Batches(self.volume._mounted(), self.volume.schema, order, None)
        batch = next(self._batches)
        if (batch.epoch, batch.number) != (epoch, number):
            raise AssertionError(f"the reader gave batch {batch.number} of epoch {batch.epoch} for {number} of {epoch}")
        self._batches_at = (epoch, number + 1) if number + 1 < len(self) else (epoch + 1, 0)
        return batch

    def _output(self, batch: Batch, pool: ThreadPoolExecutor | None) -> Any:
        if self.transform is None and self.collate_fn is None:
            output: Any = collate(batch)
        else:
            each = map if pool is None else pool.map
            items = list(each(lambda sample: _item(sample, self.transform, self._bfloat16), batch))
            output = (self.collate_fn or torch.utils.data.default_collate)(items)
        return _pinned(output) if self.pin_memory else output


def collate(batch: Batch) -> dict[str, Any]:
    """A whole batch as a dict: a tensor of shape (n, \\*shape) for each tensor field, copied together once; lists otherwise."""
    return {field.name: _collated(batch, field) for field in batch.schema.fields}


def _collated(batch: Batch, field: Field) -> Any:
    if field.kind != "tensor":
        return batch[field.name].tolist()
    array = batch.gather(field.name)
    return _bfloat16_tensor(array) if field.dtype == "bfloat16" else torch.from_numpy(array)


def _bfloat16_tensor(value: Any) -> torch.Tensor:
    """From the raw bits, or from what ``ml_dtypes`` makes of them."""
    return torch.from_numpy(np.array(value).view(np.int16)).view(torch.bfloat16)


def _bfloat16_fields(volume: Volume) -> frozenset[str]:
    return frozenset(field.name for field in volume.schema.fields if field.dtype == "bfloat16")


def _item(sample: Sample, transform: Transform, bfloat16: frozenset[str]) -> Any:
    # Arrays are copied: PyTorch has no read-only tensors.
    sample = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in sample.items()}
    for name in bfloat16:
        sample[name] = _bfloat16_tensor(sample[name])
    item = sample if transform is None else transform(sample)
    return {name: _collatable(value) for name, value in item.items()} if isinstance(item, dict) else item


def _collatable(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    # default_collate makes tensors of all of NumPy's scalars but these.
    return torch.from_numpy(np.array(value)) if isinstance(value, np.uint64) else value


def _called(name: str, function: Any) -> Any:
    if function is not None and not callable(function):
        raise InvalidArgumentError(f"{name} must be a function or None, not {function!r}")
    return function


def _share(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise InvalidArgumentError("give both rank and ranks, or neither")
    if rank is not None and ranks is not None:
        return rank, ranks
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _pinned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {key: _pinned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_pinned(each) for each in value]
    if isinstance(value, tuple):
        return type(value)(*map(_pinned, value)) if hasattr(value, "_fields") else tuple(map(_pinned, value))
    return value


__all__ = ["Dataset", "Loader", "collate"]
