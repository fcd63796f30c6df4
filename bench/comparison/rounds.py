"""The measurements on one data set: prepare, check, and interleaved rounds."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from peers import all_peers
from peers.base import Peer

from . import device, measure
from .dataset import SetSpec, StoredSource, Sum, make
from .plan import Plan


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def epoch_rates(row: dict[str, Any], count: int) -> dict[str, float]:
    """Samples/s and CPU of a whole epoch of `count` samples, its beginning included. Where the time was over before its end: the first
    batch as it was, and the rest at the rate of what followed, so that a short measurement does not make a slow start dearer."""
    rest = row["samples"] - row["first_batch_samples"]
    if row["whole_epoch"] or rest <= 0:
        return {"samples_per_s": row["samples"] / row["seconds"], "cpu_s_per_million": row["cpu_s"] / row["samples"] * 1e6}
    times = (count - row["first_batch_samples"]) / rest
    seconds = row["first_batch_s"] + (row["seconds"] - row["first_batch_s"]) * times
    cpu = row["first_batch_cpu_s"] + (row["cpu_s"] - row["first_batch_cpu_s"]) * times
    return {"samples_per_s": count / seconds, "cpu_s_per_million": cpu / count * 1e6}


class SetRun:
    """One data set, its layouts for all peers, and what came out. `results` is the whole run's dictionary."""

    def __init__(self, plan: Plan, spec: SetSpec, results: dict[str, Any]) -> None:
        self.plan = plan
        self.spec = spec
        self.results = results
        self.folder = plan.work / spec.name
        self.peers: list[type[Peer]] = []
        self.failed: dict[str, str] = {}

    # ---- laying down ----

    def prepare(self) -> None:
        """Makes the data set and every peer's layout of it."""
        self.source = make(self.spec, self.folder / "source", self.plan.archive)
        self.results["sets"].append({
            "name": self.spec.name, "title": self.spec.title, "samples": len(self.source), "bytes": self.source.total_bytes,
            "mean_bytes": self.source.total_bytes / len(self.source), "one_size": self.source.one_size,
        })  # fmt: skip
        known = all_peers()
        for key in self.plan.peers:
            peer = known[key]
            if peer.one_size_only and not self.source.one_size:
                continue
            why = self._lay_down(known[peer.prepared_by or key])
            if why:
                self._failure(key, why)
            else:
                self.peers.append(peer)

    def _lay_down(self, peer: type[Peer]) -> str | None:
        out = self.folder / peer.key
        if (self.folder / f"{peer.key}.done").exists():
            return None
        if peer.key in self.failed:
            return self.failed[peer.key]
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        count = self._count(peer)
        job = measure.Job(peer.key, out, "prepare", extra={"source": str(self.source.folder), "count": count})
        try:
            took = measure.run(job)["seconds"]
        except measure.MeasureError as error:
            self.failed[peer.key] = str(error)
            return str(error)
        say(f"  {peer.name}: laid down in {took:.1f} s")
        (self.folder / f"{peer.key}.done").write_text("")
        return None

    def out(self, peer: type[Peer]) -> Path:
        return self.folder / (peer.prepared_by or peer.key)

    @property
    def volume(self) -> Path:
        return self.folder / "dlfs-chunk" / "set.dlfs"

    # ---- measuring ----

    def measure_rounds(self) -> None:
        for number in range(self.plan.rounds):
            say(f"{self.spec.title}: round {number + 1} of {self.plan.rounds}")
            if "device" in self.plan.parts:
                self._device(number, sweep=number == 0)
            if "peers" in self.plan.parts:
                for state in ("cold", "warm"):
                    self._state(state, number)

    def _turns(self, number: int, state: str) -> list[type[Peer]]:
        """Everyone once, begun elsewhere in each round; DLFS, whose epochs are short, several times spread over the round."""
        ours = [peer for peer in self.peers if peer.key.startswith("dlfs") and state in peer.states]
        others = [peer for peer in self.peers if not peer.key.startswith("dlfs") and state in peer.states]
        shift = number * 5 % max(1, len(others))
        others = others[shift:] + others[:shift]
        repeats = self.plan.dlfs_repeats if ours else 1
        turns: list[type[Peer]] = []
        for part in range(repeats):
            turns += ours
            turns += others[part * len(others) // repeats : (part + 1) * len(others) // repeats]
        return turns

    def _state(self, state: str, number: int) -> None:
        """A round's measurements in one state of the page cache."""
        unchecked = {peer.key for peer in self.peers} - {each["peer"] for each in self.results["checks"] if each["set"] == self.spec.name}
        jobs = []
        for peer in self._turns(number, state):
            extra = {"check": True} if peer.key in unchecked else {}
            unchecked.discard(peer.key)
            jobs.append(measure.Job(
                peer.key, self.out(peer), state, seed=1 + 10 * number, batch=self.plan.batch, seconds=self.plan.seconds,
                keep_cache=self.plan.keep_cache, extra=extra,
            ))  # fmt: skip
        for job, row in measure.run_in_turn(jobs):
            peer = all_peers()[job.peer]
            if isinstance(row, measure.MeasureError):
                self._failure(peer.key, f"{state}: {row}")
                self.peers = [each for each in self.peers if each is not peer]
                continue
            if "check" in row:
                self._check(peer, Sum(**row.pop("check")))
            self._record(peer, state, number, row)

    def _record(self, peer: type[Peer], state: str, number: int, row: dict[str, Any]) -> None:
        rates = epoch_rates(row, self._count(peer))
        row |= {"set": self.spec.name, "peer": peer.key, "state": state, "round": number, **rates}
        row["bytes_per_s"] = row["samples_per_s"] * row["bytes"] / row["samples"]
        self.results["runs"].append(row)
        say(
            f"  {state} {peer.name}: {row['samples_per_s']:,.0f} samples/s, {row['bytes_per_s'] / 1e6:,.0f} MB/s, "
            f"{row['cpu_s_per_million']:.2f} CPU-s/million"
        )

    def _count(self, peer: type[Peer]) -> int:
        return min(len(self.source), peer.most_samples or len(self.source))

    def _check(self, peer: type[Peer], delivered: Sum) -> None:
        expected = StoredSource(self.source.folder, self._count(peer)).expected()
        good = delivered.same(expected)
        self.results["checks"].append({
            "set": self.spec.name, "peer": peer.key, "ok": good, "samples": delivered.samples, "distinct": delivered.distinct,
            "bytes": delivered.bytes, "checksum": f"{delivered.checksum:016x}", "expected_samples": expected.samples,
            "expected_distinct": expected.distinct, "expected_checksum": f"{expected.checksum:016x}",
        })  # fmt: skip
        if not good:
            say(f"  {peer.name} DID NOT DELIVER THE SAME BYTES: {delivered} instead of {expected}")

    def _failure(self, key: str, why: str) -> None:
        say(f"  {key}: not measured: {why}")
        self.results["failures"].append({"set": self.spec.name, "peer": key, "why": why})

    # ---- the device, DLFS without Python, ranks ----

    def _device(self, number: int, sweep: bool) -> None:
        """In every round the same points beside the peers; once, several depths and the samples' own size."""
        if not self.volume.exists():
            return
        mean = self.source.total_bytes // len(self.source)
        points = [(256 << 10, 32)]
        if sweep:
            points += [(256 << 10, 8), (256 << 10, 128), (device.aligned(mean), 32), (device.aligned(mean), 128)]
        seconds = 0.5 if self.plan.quick else 1.0
        for size, depth in dict.fromkeys(points):
            self._tool(number, lambda: device.fio(self.volume, size, depth, seconds))
            if sweep:
                self._tool(number, lambda: device.fio(self.volume, size, depth, seconds, huge=False))
            self._tool(number, lambda: device.dlfs_device(self.plan.dlfs, self.volume, size, depth, seconds))
        for mode in ("chunk", "full"):
            self._native(number, mode)

    def _tool(self, number: int, probe: Any) -> None:
        try:
            self.results["device"].append({"set": self.spec.name, "round": number, **probe()})
        except device.ToolError as error:
            say(f"  {error}")
            self.results["notes"].append(str(error))

    def _native(self, number: int, mode: str) -> None:
        if not self.plan.keep_cache:
            measure.drop_caches([self.volume.parent])
            measure.touch_memory()
        try:
            out = device.dlfs_bench(self.plan.dlfs, self.volume, mode)
        except device.ToolError as error:
            self.results["notes"].append(str(error))
            return
        self.results["native"].append({
            "set": self.spec.name, "round": number, "mode": mode, "samples_per_s": out["samples_per_s"],
            "bytes_per_s": out["bytes_per_s"], "cpu_s_per_million": out["cpu_s_per_million_samples"],
            "amplification": out["amplification"], "seconds": out["elapsed_s"],
        })  # fmt: skip

    def measure_ranks(self) -> None:
        """DLFS by one process and by two that share every batch."""
        for number in range(self.plan.rounds):
            for mode in ("chunk", "full"):
                for ranks in (1, 2):
                    jobs = [
                        measure.Job(
                            f"dlfs-{mode}", self.folder / "dlfs-chunk", "cold", seed=3 + number, batch=self.plan.batch,
                            seconds=self.plan.seconds, keep_cache=self.plan.keep_cache, extra={"attributes": {"rank": rank, "ranks": ranks}},
                        )  # fmt: skip
                        for rank in range(ranks)
                    ]
                    self._ranks(jobs, mode, ranks, number)

    def _ranks(self, jobs: list[measure.Job], mode: str, ranks: int, number: int) -> None:
        try:
            row = measure.run_ranks(jobs)
        except measure.MeasureError as error:
            self._failure(f"dlfs-{mode}", f"{ranks} ranks: {error}")
            return
        self.results["ranks"].append({
            "set": self.spec.name, "mode": mode, "ranks": ranks, "round": number,
            "samples_per_s": row["samples"] / row["seconds"], "cpu_s_per_million": row["cpu_s"] / row["samples"] * 1e6,
            "bytes_per_s": row["bytes"] / row["seconds"],
        })  # fmt: skip

    def measure_open(self) -> None:
        """Opening a set of many samples, cold, and its first batch."""
        for number in range(self.plan.rounds):
            jobs = [
                measure.Job(peer.key, self.out(peer), "cold", seconds=0.0, batch=self.plan.batch, keep_cache=self.plan.keep_cache)
                for peer in self.peers if "cold" in peer.states
            ]  # fmt: skip
            for job, row in measure.run_in_turn(jobs):
                if isinstance(row, measure.MeasureError):
                    self._failure(job.peer, f"opening: {row}")
                    continue
                self.results["opening"].append({
                    "peer": job.peer, "round": number, "samples": self._count(all_peers()[job.peer]), "open_s": row["open_s"],
                    "first_batch_s": row["open_s"] + row["first_batch_s"],
                    "peak_memory_bytes": row["peak_memory_bytes"], "memory_before_bytes": row["memory_before_bytes"],
                })  # fmt: skip

    def remove(self) -> None:
        if not self.plan.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def run_set(plan: Plan, spec: SetSpec, results: dict[str, Any], opening: bool = False) -> None:
    """Everything on one data set; what it laid down is removed afterwards."""
    begin = time.time()
    run = SetRun(plan, spec, results)
    say(f"== {spec.title}: {spec.count:,} samples")
    try:
        run.prepare()
        if opening:
            run.measure_open()
        else:
            run.measure_rounds()
            if "ranks" in plan.parts and run.volume.exists() and spec.size_bytes in (512, 4 << 10, 128 << 10):
                run.measure_ranks()
    finally:
        run.remove()
    say(f"   {time.time() - begin:.0f} s")
