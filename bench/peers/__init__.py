"""DLFS and what a user could pick instead, one small module each, behind one interface (base.py).

A new peer: a module with PEERS, its name in MODULES below, its packages in python/requirements-bench.txt.
"""

from __future__ import annotations

import importlib

from .base import Peer

MODULES = (
    "dlfs_volume", "files_loop", "files_loader", "webdataset", "streaming", "litdata",
    "tfrecord", "array_record", "lmdb", "hdf5", "memory_map",
)  # fmt: skip


def all_peers() -> dict[str, type[Peer]]:
    """Every peer by key. Imports none of their packages."""
    found: dict[str, type[Peer]] = {}
    for module in MODULES:
        for peer in importlib.import_module(f"{__name__}.{module}").PEERS:
            found[peer.key] = peer
    return found
