"""One file a sample, read by a PyTorch DataLoader with 0, 1 and 2 workers, as an ImageFolder is (without decoding)."""

from __future__ import annotations

from collections.abc import Iterator

from .base import Peer, identity
from .files_loop import FilesLoop, read, scan


class FolderDataset:
    """Map-style, as torch.utils.data.Dataset: index to bytes."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> bytes:
        return read(self.paths[i])


class FilesLoader(Peer):
    shuffle = "A permutation of all samples each epoch (DataLoader(shuffle=True))."
    mixing = "full"
    requirements = ("torch",)
    modules = ("torch", "torch.utils.data")
    most_samples = FilesLoop.most_samples
    prepared_by = "files"
    workers = 0

    def open(self) -> None:
        from torch.utils.data import DataLoader

        self.loader = DataLoader(
            FolderDataset(scan(self.out)), batch_size=self.batch, shuffle=True, num_workers=self.workers, collate_fn=identity
        )

    def epoch(self, seed: int) -> Iterator[list[bytes]]:
        import torch

        torch.manual_seed(seed)
        return iter(self.loader)


class FilesLoader0(FilesLoader):
    key = "files-loader-0"
    name = "files, DataLoader, 0 workers"


class FilesLoader1(FilesLoader):
    key = "files-loader-1"
    name = "files, DataLoader, 1 worker"
    workers = 1


class FilesLoader2(FilesLoader):
    key = "files-loader-2"
    name = "files, DataLoader, 2 workers"
    workers = 2


PEERS = (FilesLoader0, FilesLoader1, FilesLoader2)
