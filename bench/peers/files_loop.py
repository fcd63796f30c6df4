"""One file a sample on the local file system, read one by one in a plain loop."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

from .base import Peer, Source, in_batches

FILES_A_FOLDER = 1000


class FilesLoop(Peer):
    key = "files"
    name = "files, plain loop"
    shuffle = "A permutation of all paths each epoch (random.shuffle)."
    mixing = "full"
    most_samples = 50_000

    @classmethod
    def prepare(cls, source: Source, out: Path) -> None:
        for i, sample in enumerate(source):
            folder = out / f"{i // FILES_A_FOLDER:04}"
            if i % FILES_A_FOLDER == 0:
                folder.mkdir()
            with open(folder / f"{i % FILES_A_FOLDER:03}.bin", "wb", buffering=0) as file:
                file.write(sample)

    def open(self) -> None:
        self.paths = scan(self.out)

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        paths = list(self.paths)
        random.Random(seed).shuffle(paths)
        return in_batches(map(read, paths), self.batch)


def scan(out: Path) -> list[str]:
    """All files below a folder, as torchvision's ImageFolder finds them."""
    return [os.path.join(where, name) for where, _, names in sorted(os.walk(out)) for name in sorted(names)]


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


PEERS = (FilesLoop,)
