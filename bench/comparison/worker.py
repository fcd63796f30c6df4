"""One measurement, in this process alone. Run by measure.py; talks JSON lines: says "ready" when all is imported, waits for
a line (the page cache is being dropped or filled meanwhile), and answers with the result."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path[0] = str(BENCH)  # not this folder, whose module names could hide packages

from comparison.dataset import StoredSource, Summer  # noqa: E402
from peers import all_peers  # noqa: E402
from peers.base import Peer  # noqa: E402

LEAST_BATCHES = 5  # of a measurement that ends before the epoch does
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """CPU time of this process, its threads, and its children, whether they still run or are done."""
    own, done = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + done.ru_utime + done.ru_stime + sum(map(_cpu_of, children(os.getpid())))


def children(pid: int) -> list[int]:
    """All live descendants."""
    found: list[int] = []
    for task in _listing(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                direct = [int(child) for child in file.read().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *children(child)]
    return found


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _cpu_of(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return sum(int(each) for each in fields[11:15]) * TICK_S  # utime, stime, and of its own children that are done
    except (OSError, IndexError):
        return 0.0


class Drained:
    """What drain() saw. Times are of perf_counter(); CPU is cpu_seconds()."""

    samples = bytes = batches = first_samples = 0
    whole = False
    first_at = end_at = first_cpu = 0.0


def drain(batches: Iterator[Sequence[bytes | memoryview]], seconds: float, least_batches: int = 1) -> Drained:
    """Takes batches until they end, or until the time is over and there were enough of them."""
    seen = Drained()
    deadline = time.perf_counter() + seconds
    count = 0
    for batch in batches:
        for sample in batch:
            count += len(sample)
        seen.samples += len(batch)
        seen.batches += 1
        seen.end_at = time.perf_counter()
        if seen.batches == 1:
            seen.first_at, seen.first_samples, seen.first_cpu = seen.end_at, len(batch), cpu_seconds()
        if seen.end_at > deadline and seen.batches >= least_batches:
            break
    else:
        seen.whole = True
    seen.bytes = count
    return seen


def measure(peer: Peer, spec: dict) -> dict:
    """cold: opens and draws one epoch. warm: draws an epoch before, which is not counted."""
    begin = time.perf_counter()
    peer.open()
    opened = time.perf_counter()
    seed, seconds = int(spec["seed"]), float(spec["seconds"])
    if spec["state"] == "warm":  # all files were read before: only a reader with a cache of its own must see them all
        drain(peer.epoch(seed), 600 if peer.prefetches_across_epochs else seconds)
    if "at" in spec:  # several ranks begin together
        time.sleep(max(0.0, spec["at"] - time.time()))
    cpu, clock, start = cpu_seconds(), time.time(), time.perf_counter()
    seen = drain(peer.epoch(seed + 1), seconds, LEAST_BATCHES if seconds else 1)
    cpu_end = cpu_seconds()  # workers have ended, and what they read ahead is counted
    peer.close()
    return {
        "samples": seen.samples,
        "bytes": seen.bytes,
        "seconds": seen.end_at - start,
        "whole_epoch": seen.whole,
        "cpu_s": cpu_end - cpu,
        "open_s": opened - begin,
        "first_batch_s": seen.first_at - start,
        "first_batch_samples": seen.first_samples,
        "first_batch_cpu_s": seen.first_cpu - cpu,
        "ended_at": clock + seen.end_at - start,
    }


def prepare(peer: Peer, spec: dict) -> dict:
    """Lays the samples down. Its time is told for information."""
    begin = time.perf_counter()
    peer.prepare(StoredSource(Path(spec["source"]), spec["count"]), peer.out)
    return {"seconds": time.perf_counter() - begin, "cpu_s": cpu_seconds()}


def check(peer: Peer, spec: dict) -> dict:
    """One whole epoch through the checksum. Not timed."""
    summer = Summer()
    peer.open()
    for batch in peer.epoch(int(spec["seed"])):
        for sample in batch:
            summer.add(sample)
    peer.close()
    return asdict(summer.result())


def main() -> int:
    spec = json.loads(sys.argv[1])
    signal.alarm(int(spec["deadline_s"]))  # ends it should it hang when whoever runs it is gone
    # The answer goes to the descriptor given; packages may print what they like.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind = all_peers()[spec["peer"]]
    missing = kind.missing()
    if missing:
        print(json.dumps({"error": missing}), file=answer, flush=True)
        return 1
    # In the warm state the epoch that is measured lies between two others, so that what is read ahead of it and at its end is even.
    peer = kind(Path(spec["out"]), int(spec["batch"]), 3 if spec["state"] == "warm" else 1)
    for name, value in spec.get("attributes", {}).items():
        setattr(peer, name, value)  # for measurements of one knob
    print(json.dumps({"ready": True}), file=answer, flush=True)
    if not sys.stdin.readline():
        return 1
    work = {"check": check, "prepare": prepare}.get(spec["state"], measure)
    print(json.dumps(work(peer, spec)), file=answer, flush=True)
    if spec.get("check"):
        print(json.dumps(check(kind(Path(spec["out"]), int(spec["batch"])), spec)), file=answer, flush=True)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that a package left behind must not keep this process
