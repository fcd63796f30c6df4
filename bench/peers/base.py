"""What every peer has in common: how a data set is laid down for it, opened, and drawn in random order.

A peer is used as its own documentation recommends for data that do not fit in memory. All get the same samples, and all hand
out batches of bytes-like objects whose bytes are in the memory of this process: a peer whose natural result is a lazy view
of a mapped file copies it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol


class Source(Protocol):
    """The samples to lay down: len(source), and iteration gives each one's bytes in order. sizes: int64 array."""

    sizes: Sequence[int]

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...


class Peer:
    """One way of keeping and drawing samples. **Thread**: one at a time; every measurement has a process of its own."""

    #: Short name for options and results.
    key: ClassVar[str]
    #: As people call it.
    name: ClassVar[str]
    #: What its shuffle really is, in a sentence.
    shuffle: ClassVar[str]
    #: "full": an independent permutation of all samples; "buffer": shards or chunks in random order, mixed in a bounded window.
    mixing: ClassVar[str]
    #: The packages on PyPI that it needs besides NumPy, the one that is meant first; the versions are in requirements-bench.txt.
    requirements: ClassVar[tuple[str, ...]] = ()
    #: The modules to import before the clock starts.
    modules: ClassVar[tuple[str, ...]] = ()
    #: Only for data sets whose samples all have one size.
    one_size_only: ClassVar[bool] = False
    #: An upper bound rather than something that people train from.
    bound: ClassVar[bool] = False
    #: Only the first so many samples are laid down (one file a sample takes an inode each); None: all.
    most_samples: ClassVar[int | None] = None
    #: "cold" and "warm" are measured; a variant that differs only in one of them leaves the other out.
    states: ClassVar[tuple[str, ...]] = ("cold", "warm")
    #: The key of the peer that lays down the same files, which are then shared; empty: its own.
    prepared_by: ClassVar[str] = ""

    #: Goes on to the next epoch by itself: it is told how many are wanted, and those are drawn to their ends.
    prefetches_across_epochs: ClassVar[bool] = False

    def __init__(self, out: Path, batch: int = 256, epochs: int = 1) -> None:
        """out: the folder that prepare() filled. epochs: how many epoch() will be asked for in a row (a reader that prefetches
        across them wants to know)."""
        self.out = out
        self.batch = batch
        self.epochs = epochs

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here, in a sentence; None when it can. Imports its packages."""
        for module in cls.modules:
            try:
                importlib.import_module(module)
            except Exception as error:  # a package may fail to import in any way
                return f"import {module} failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return None

    @classmethod
    def versions(cls) -> str:
        """The installed versions, for the report."""
        found = []
        for requirement in cls.requirements:
            try:
                found.append(f"{requirement} {importlib.metadata.version(requirement)}")
            except importlib.metadata.PackageNotFoundError:
                found.append(f"{requirement} (version unknown)")
        return ", ".join(found)

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        """Lays the samples down in `out`, an empty folder. Not timed."""
        raise NotImplementedError

    def open(self) -> None:
        """Opens what prepare() made, as a training job would at its start."""
        raise NotImplementedError

    def epoch(self, seed: int) -> Iterator[Sequence[bytes | memoryview]]:
        """Every sample once, in batches of self.batch, in an order that depends on `seed`."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends workers and lets go of files."""


def in_batches(samples: Iterable[bytes], batch: int) -> Iterator[list[bytes]]:
    """Groups single samples; the last batch may be short."""
    pending: list[bytes] = []
    for sample in samples:
        pending.append(sample)
        if len(pending) == batch:
            yield pending
            pending = []
    if pending:
        yield pending


def identity(batch: list[bytes]) -> list[bytes]:
    """A collate function that leaves the samples as they are; importable, so that worker processes can have it."""
    return batch
