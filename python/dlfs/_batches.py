"""Iteration over shuffled mini-batches."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from . import _core
from ._batch import Batch
from ._errors import InvalidArgumentError
from ._options import Order
from ._schema import Schema

State = bytes | Mapping[str, Any]


class Batches:
    """An iterator over a rank's batches, from :meth:`dlfs.Volume.batches`. One thread at a time.

    It reads ahead on a thread of its own, which ends with the iterator, with :meth:`close`, at the end of a ``with``
    block, and at the exit of the interpreter. Batches taken from it stay valid.
    """

    def __init__(self, volume: _core.Volume, schema: Schema, order: Order, state: State | None) -> None:
        options = order.to_core()
        self._schema = schema
        self._core = volume.sequence(options) if state is None else volume.resume(state_bytes(state), options)
        self._batches_per_epoch = self._core.batches_per_epoch
        self._begin = (self._core.epoch, self._core.next_batch)
        self._end_epoch = options["epoch"] + options["epochs"] if options["epochs"] else None
        # Runs once: at close(), when this is collected, or before the interpreter is torn down.
        self._close = weakref.finalize(self, self._core.close)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        core = self._core.next()
        if core is None:
            raise StopIteration
        return Batch(core, self._schema)

    def __len__(self) -> int:
        """The batches that it gives in all, from where it began. Raises TypeError when it is endless."""
        if self._end_epoch is None:
            raise TypeError("these batches are endless (epochs=None)")
        epoch, batch = self._begin
        epochs = max(self._end_epoch - epoch, 1 if batch else 0)  # an epoch that is under way is finished in any case
        return int(epochs * self._batches_per_epoch - batch)

    def __length_hint__(self) -> int:
        return 0 if self._end_epoch is None else len(self)

    @property
    def batches_per_epoch(self) -> int:
        return self._batches_per_epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._core.epoch

    @property
    def next_batch(self) -> int:
        """The number within its epoch of the next batch."""
        return self._core.next_batch

    @property
    def notes(self) -> str:
        """What the reader does differently from what was asked, in words; often empty."""
        return self._core.notes

    def state(self) -> bytes:
        """Where the next batch lies, in at most 64 bytes: ``batches(..., state=...)`` goes on there, with any rank count."""
        return self._core.state()

    def state_dict(self) -> dict[str, Any]:
        """The same for checkpoints: a small dict that any format can hold, JSON included."""
        return {"dlfs": 1, "state": self.state().hex()}

    def stat(self) -> dict[str, Any]:
        """Counters since the start, sizes in bytes: samples, batches, device_bytes, amplification (device bytes to payload
        bytes), cache_hits, skipped, memory_bytes, memory_limit_bytes, and where the waiting went: ``wait``, ``device``,
        ``queue``, ``verify``, ``copy``, each with p50_us, p95_us, p99_us and total_s."""
        return self._core.statistics()

    def close(self) -> None:
        """Stops reading ahead. Idempotent."""
        self._close()

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("batches cannot be pickled: pickle the volume, and state() to go on elsewhere")


def state_bytes(state: State) -> bytes:
    """The bytes of what state() or state_dict() gave."""
    if isinstance(state, (bytes, bytearray, memoryview)):
        return bytes(state)
    try:
        if state["dlfs"] != 1:
            raise InvalidArgumentError(f"this state is of a newer version ({state['dlfs']})")
        return bytes.fromhex(state["state"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"this is not a state that state() or state_dict() gave: {error}") from None
