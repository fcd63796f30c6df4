"""Targets that need no peer: the engine on a device that is faster than the processor, verification, pacing, stacking, mounting."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import device, measure
from .plan import Plan
from .targets import Row, row

MIB = 1 << 20
PROBE = Path(__file__).resolve().parent / "probe.py"
DEADLINE_S = 600


class ProbeError(Exception):
    """A probe gave no result; str() says why."""


def probe(name: str, **arguments: Any) -> dict[str, Any]:
    """Runs one in a process of its own, on the last core where there are several. Raises ProbeError."""
    measure.touch_memory()
    try:
        done = subprocess.run([sys.executable, str(PROBE), name, json.dumps(arguments)], capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"{name} was not done within {DEADLINE_S} s") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise ProbeError(f"{name}: {words[-1] if words else 'it said nothing'}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def served(dlfs: Path, space: str) -> Iterator[str]:
    """A target in memory on one core, everything else on the others: a device that is faster than the reader. Gives its URL."""
    cores = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen([str(dlfs), "serve", "--listen", "127.0.0.1:0", space], stdout=subprocess.PIPE, text=True)
    try:
        if len(cores) > 1:
            os.sched_setaffinity(process.pid, cores[:1])
            os.sched_setaffinity(0, cores[1:])
        url = process.stdout.readline().strip()
        if process.stdout.readline().strip() != "ready":
            raise ProbeError(f"dlfs serve {space} did not start: it said {url!r}")
        yield url
    finally:
        os.sched_setaffinity(0, cores)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class Probes:
    """All of them; a probe that fails leaves its lines out and a note."""

    def __init__(self, plan: Plan, notes: list[str]) -> None:
        self.plan = plan
        self.notes = notes
        self.folder = plan.work / "engine"
        self.seconds = 1.0 if plan.quick else 3.0
        self.rounds = range(max(2, plan.rounds))
        self.count = 25_000 if plan.quick else 100_000

    def rows(self) -> list[Row]:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            return [row for part in (self._fast_device, self._file, self._ten_million) for row in self._guarded(part)]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _guarded(self, part: Callable[[], list[Row]]) -> list[Row]:
        try:
            return part()
        except (ProbeError, device.ToolError, OSError) as error:
            self.notes.append(f"not measured ({part.__name__.strip('_').replace('_', ' ')}): {error}")
            return []

    def _fast_device(self) -> list[Row]:
        """4 KiB samples behind `dlfs serve mem:`, where the reader's core is the limit."""
        iops, cpu = [], []
        cache = self.count * 4096 // 8
        with served(self.plan.dlfs, f"mem:{self.count * 4096 * 5 // 4 // MIB + 64}MiB") as url:
            probe("pack", url=url, count=self.count, size=4096)
            for _ in self.rounds:
                options = ("--depth", "128", "--cache", str(max(32 * MIB, cache)), "--seconds", f"{self.seconds:g}")
                measure.touch_memory()
                ours = device.dlfs_bench(self.plan.dlfs, url, "full", *options)
                raw = device.dlfs_device(self.plan.dlfs, url, 4096, 128, self.seconds)
                iops.append(ours["samples_per_s"] / raw["iops"])
                on, off = (probe("draw", url=url, mode="chunk", verify=each, seconds=self.seconds, cache_bytes=max(32 * MIB, cache)) for each in (True, False))
                cpu.append(on["cpu_s_per_million"] / off["cpu_s_per_million"] - 1)
        detail = "against `dlfs serve mem:` on the other core"
        return [
            row("4 KiB samples, full, device faster than the CPU: samples/s of `dlfs bench device` IOPS at depth 128", "at least 90%", iops, lambda r: r >= 0.9, "{:.0%}", detail),
            row("4 KiB samples, chunk: CPU per sample for verifying checksums where the device is not the limit", "at most 25% more", cpu, lambda r: r <= 0.25, "{:+.0%}", detail),
        ]  # fmt: skip

    def _file(self) -> list[Row]:
        """4 KiB samples in a file."""
        volume = str(self.folder / "file.dlfs")
        # Large enough that the cache does not hold it: the device is the limit.
        probe("pack", url=volume, count=self.count * 2, size=4096)
        rates, ratio, cores = [], [], []
        for _ in self.rounds:
            on, off = (probe("draw", url=volume, mode="chunk", verify=each, seconds=self.seconds, cache_bytes=64 * MIB) for each in (True, False))
            rates.append(on["samples_per_s"] / off["samples_per_s"])
            ratio.append(probe("stack", url=volume)["ratio"])
            cores.append(probe("paced", url=volume, rate=20_000, seconds=2 * self.seconds)["cores"])
        return [
            row("4 KiB samples, chunk, file: samples/s with checksums verified over without", "nothing lost (at least 97%, the noise)", rates, lambda r: r >= 0.97, "{:.0%}"),
            row("stacking 256 samples of 4 KiB into one array, over a plain copy of as many bytes", "memory-copy speed (at least 80%)", ratio, lambda r: r >= 0.8, "{:.0%}"),
            row("CPU of a consumer that takes 20,000 samples/s, whole process", "at most 5% of a core", cores, lambda r: r <= 0.05, "{:.1%} of a core"),
        ]  # fmt: skip

    def _ten_million(self) -> list[Row]:
        """Time to first batch; a quick run takes a twentieth of the samples and says so."""
        count = 500_000 if self.plan.quick else 10_000_000
        volume = self.folder / "many.dlfs"
        probe("pack", url=str(volume), count=count, size=100)
        times = []
        for _ in self.rounds:
            if not self.plan.keep_cache:
                measure.drop_caches([self.folder])
            times.append(probe("first", url=str(volume))["seconds"])
        what = f"mount and first batch, {count / 1e6:g} million samples, cold"
        line = row(what, "under 1.5 s", times, lambda s: s < 1.5, "{:.2f} s")
        if count < 10_000_000:
            line |= {"wanted": "for information", "reached": None}
        return [line]
