"""Checks what the user passed before it goes to C++, which takes fixed-width integers."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Literal, Union

from ._errors import InvalidArgumentError

Shuffle = Union[Literal["chunk", "full", "sequential"], bool, None]
Tail = Literal["short", "drop", "pad"]
OnError = Literal["raise", "skip"]

_MODES: dict[object, int] = {"sequential": 0, False: 0, None: 0, "full": 1, "chunk": 2, True: 2}
_TAILS: dict[object, int] = {"drop": 0, "short": 1, "pad": 2}

U32 = 2**32 - 1
U64 = 2**64 - 1


def unsigned(name: str, value: object, most: int = U64, least: int = 0) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}") from None
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name} is {number}, and must lie in {least}..{most}")
    return number


def choice(name: str, value: object, known: dict[object, int]) -> int:
    try:
        return known[value]
    except (KeyError, TypeError):
        words = ", ".join(repr(key) for key in known)
        raise InvalidArgumentError(f"{name} is {value!r}, and must be one of {words}") from None


def skips(on_error: object) -> bool:
    return bool(choice("on_error", on_error, {"raise": 0, "skip": 1}))


@dataclass(frozen=True)
class Order:
    """What :meth:`dlfs.Volume.batches` takes (it documents each), checked. Immutable."""

    batch_size: int
    shuffle: Shuffle = "chunk"
    seed: int = 0
    epoch: int = 0
    epochs: int | None = 1
    rank: int = 0
    ranks: int = 1
    tail: Tail = "short"
    lanes: int = 240
    window: int = 1
    start_batch: int = 0
    cache_bytes: int = 0
    depth: int = 128
    prefetch_batches: int = 0
    on_error: OnError = "raise"
    verify: bool = True

    def to_core(self) -> dict[str, Any]:
        """The options as dlfs._core takes them. Raises InvalidArgumentError naming the first that is wrong."""
        return {
            "mode": choice("shuffle", self.shuffle, _MODES),
            "tail": choice("tail", self.tail, _TAILS),
            "skip_errors": skips(self.on_error),
            "batch": unsigned("batch_size", self.batch_size, U32, least=1),
            "seed": unsigned("seed", self.seed),
            "epoch": unsigned("epoch", self.epoch),
            "epochs": 0 if self.epochs is None else unsigned("epochs", self.epochs, least=1),
            "rank": unsigned("rank", self.rank, U32),
            "ranks": unsigned("ranks", self.ranks, U32, least=1),
            "lanes": unsigned("lanes", self.lanes, U32, least=1),
            "window": unsigned("window", self.window, U32, least=1),
            "start_batch": unsigned("start_batch", self.start_batch),
            "cache_bytes": unsigned("cache_bytes", self.cache_bytes),
            "depth": unsigned("depth", self.depth, U32, least=1),
            "prefetch_batches": unsigned("prefetch_batches", self.prefetch_batches, U32),
            "verify": bool(self.verify),
        }
