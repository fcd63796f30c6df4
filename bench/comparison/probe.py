"""One probe of DLFS, in this process alone: `probe.py NAME JSON` prints a JSON line. Run by engine.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import dlfs  # noqa: E402
import numpy as np  # noqa: E402

from comparison.worker import cpu_seconds  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20


def pack(url: str, count: int, size: int) -> dict[str, Any]:
    """Packs `count` generated samples of one size."""
    block = np.random.default_rng(1).bytes(8 * MIB + size)
    with dlfs.Writer(url, "data: bytes", names=False, overwrite=True) as writer:
        for i in range(count):
            first = i * 4099 % (8 * MIB)
            writer.write({"data": block[first : first + size]})
    return {}


def draw(url: str, mode: str, verify: bool, seconds: float, cache_bytes: int = 256 * MIB) -> dict[str, Any]:
    """Samples/s and CPU over whole epochs until the time is over."""
    volume = dlfs.mount(url)
    batches = volume.batches(256, shuffle=mode, seed=1, epochs=None, verify=verify, cache_bytes=cache_bytes)
    for _ in range(20):
        next(batches)
    cpu, begin, samples = cpu_seconds(), time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(16):
            samples += len(next(batches)["data"])
    took, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    batches.close()
    return {"samples_per_s": samples / took, "cpu_s_per_million": cpu / samples * 1e6}


def paced(url: str, rate: float, seconds: float) -> dict[str, Any]:
    """A consumer that wants `rate` samples/s: which part of a core all of the process takes."""
    volume = dlfs.mount(url)
    batches = volume.batches(256, shuffle="chunk", seed=1, epochs=None)
    next(batches)
    time.sleep(0.5)
    cpu, begin, number = cpu_seconds(), time.perf_counter(), 0
    while (now := time.perf_counter()) - begin < seconds:
        due = begin + number * 256 / rate
        if due > now:
            time.sleep(due - now)
        next(batches)
        number += 1
    took, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    batches.close()
    return {"cores": cpu / took, "samples_per_s": number * 256 / took}


def stack(url: str) -> dict[str, Any]:
    """Stacking the samples of a batch into one array, against a plain copy of as many bytes from a large array."""
    volume = dlfs.mount(url)
    batches = volume.batches(256, shuffle="chunk", seed=1, cache_bytes=256 * MIB)
    size = volume[0]["data"].nbytes
    out = np.empty(256 * size, np.uint8)
    plain = np.ones((100, 256 * size), np.uint8)
    ours, theirs = [], []
    for number, batch in zip(range(100), batches):
        column = batch["data"]
        begin = time.perf_counter()
        column.gather(out)
        middle = time.perf_counter()
        np.copyto(out, plain[number])
        end = time.perf_counter()
        ours.append(middle - begin)
        theirs.append(end - middle)
        if number == 0:
            time.sleep(1)  # what is read ahead is there then, and nobody else wants the memory
    return {"ratio": median(theirs) / median(ours), "bytes_per_s": out.nbytes / median(ours)}


def first(url: str) -> dict[str, Any]:
    """From the mount to the first batch."""
    begin = time.perf_counter()
    volume = dlfs.mount(url)
    mounted = time.perf_counter()
    batch = next(volume.batches(256, shuffle="chunk", seed=1))
    return {"seconds": time.perf_counter() - begin, "mount_s": mounted - begin, "samples": len(volume), "batch": len(batch)}


if __name__ == "__main__":
    probes = {probe.__name__: probe for probe in (pack, draw, paced, stack, first)}
    print(json.dumps(probes[sys.argv[1]](**json.loads(sys.argv[2]))), flush=True)
