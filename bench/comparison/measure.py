"""Runs measurements: each in a fresh process, with the page cache dropped or filled before, its memory watched from here."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import worker

WORKER = Path(worker.__file__)
START_DEADLINE_S = 180
POLL_S = 0.05
GROUP = 8  # workers that are started together
TOUCH_BYTES = 640 << 20


class MeasureError(Exception):
    """A measurement that gave no result; str() says why."""


@dataclass
class Job:
    """What worker.py is told. state: prepare, cold, warm or check. extra: "check": an epoch through the checksum follows, not
    timed; "attributes": of the peer, to set."""

    peer: str
    out: Path
    state: str
    seed: int = 1
    batch: int = 256
    seconds: float = 5.0
    deadline_s: float = 600.0
    keep_cache: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        spec = {"peer": self.peer, "out": str(self.out), "state": self.state, "seed": self.seed, "batch": self.batch}
        return json.dumps({**spec, "seconds": self.seconds, "deadline_s": START_DEADLINE_S + GROUP * self.deadline_s, **self.extra})


class Started:
    """A worker that has imported what it needs and waits for go()."""

    def __init__(self, job: Job) -> None:
        self.job = job
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), job.text()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            self._answer(START_DEADLINE_S)
            self.memory = Memory(self.process.pid)
        except BaseException:
            self.end()
            raise

    def go(self) -> None:
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise MeasureError(f"it ended before it was measured: {self._last_words()}") from None
        self.memory.start()

    def result(self) -> dict[str, Any]:
        try:
            answer = self._answer(self.job.deadline_s)
            answer |= {"peak_memory_bytes": self.memory.stop(), "memory_before_bytes": self.memory.before}
            if self.job.extra.get("check"):
                answer["check"] = self._answer(self.job.deadline_s)
        finally:
            self.memory.stop()
            self.end()
        return answer

    def end(self) -> None:
        """Kills the worker and what it started. Idempotent."""
        for pid in [*worker.children(self.process.pid), self.process.pid]:
            if pid != self.process.pid or self.process.poll() is None:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        timer = threading.Timer(deadline_s, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self.process.wait()
            raise MeasureError(f"it ended (exit status {self.process.returncode}) without a result: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasureError(answer["error"])
        return answer

    def _last_words(self) -> str:
        self.log.flush()
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"


def run(job: Job) -> dict[str, Any]:
    """One measurement. Raises MeasureError."""
    return finish(Started(job))


def finish(started: Started) -> dict[str, Any]:
    """Brings the page cache into the state that the job wants, lets the worker go, and waits for it. Raises MeasureError."""
    job = started.job
    try:
        if job.state == "cold" and not job.keep_cache:
            drop_caches([job.out])
        elif job.state == "warm":
            fill_cache(job.out)
        if job.state != "prepare" and not job.keep_cache:
            touch_memory()
        started.go()
    except BaseException:
        started.end()
        raise
    return started.result()


def run_in_turn(jobs: list[Job], group: int = GROUP) -> Iterator[tuple[Job, dict[str, Any] | MeasureError]]:
    """The jobs one after the other; only the imports of a group's workers overlap, before its first measurement. Dropping the page
    cache then makes nobody read its packages anew, and what still waits costs no time of a processor."""
    for begin in range(0, len(jobs), group):
        with ThreadPoolExecutor(2) as pool:
            waiting = list(pool.map(_started, jobs[begin : begin + group]))
        try:
            for job, started in zip(jobs[begin : begin + group], waiting):
                try:
                    yield job, started if isinstance(started, MeasureError) else finish(started)
                except MeasureError as error:
                    yield job, error
        finally:
            for started in waiting:
                if isinstance(started, Started):
                    started.end()


def _started(job: Job) -> Started | MeasureError:
    try:
        return Started(job)
    except MeasureError as error:
        return error


class Memory:
    """Watches the anonymous, shared and huge-page memory of a process and its descendants; mapped files do not count."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.before = self.now()
        self.peak = self.before
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def now(self) -> int:
        return sum(_memory_of(pid) for pid in [self.pid, *worker.children(self.pid)])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        return self.peak

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            self.peak = max(self.peak, self.now())


def _memory_of(pid: int) -> int:
    wanted = ("RssAnon:", "RssShmem:", "HugetlbPages:")
    try:
        with open(f"/proc/{pid}/status") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(wanted)) * 1024
    except OSError:
        return 0


def cache_method() -> str:
    """How the page cache is emptied, for the report."""
    if os.access("/proc/sys/vm/drop_caches", os.W_OK):
        return "sync, then 3 to /proc/sys/vm/drop_caches before each measurement"
    return "sync, then posix_fadvise(DONTNEED) on every file of the peer (not root: names and inodes stay cached)"


def drop_caches(folders: list[Path]) -> None:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        return
    except OSError:
        pass
    for path in files_of(folders):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def touch_memory() -> None:
    """Takes memory in huge pages, writes to it, and gives it back, so that whoever asks next gets pages that the machine has.

    A virtual machine may return idle memory to its host (free page reporting); the first touch of each page is then 20 times as dear
    as clearing it, and a reader that was measured after a pause would pay for that, and one measured at once would not.
    """
    length = TOUCH_BYTES if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 4 * TOUCH_BYTES else 0
    if not length:
        return
    with mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for first in range(0, length, mmap.PAGESIZE):
            memory[first] = 1


def fill_cache(folder: Path) -> None:
    """Reads every file once. O_DIRECT readers pass by what is cached, and it costs them nothing."""
    for path in files_of([folder]):
        with open(path, "rb", buffering=0) as file:
            while file.read(4 << 20):
                pass


def files_of(folders: list[Path]) -> list[str]:
    return [os.path.join(where, name) for folder in folders for where, _, names in os.walk(folder) for name in names]


def run_ranks(jobs: list[Job]) -> dict[str, Any]:
    """Several workers at once, one a rank: all of them together, from the common start to the last one's end."""
    started: list[Started] = []
    try:
        begin = time.time() + 3.0 * len(jobs) + 1.0
        for job in jobs:
            job.extra["at"] = begin
            started.append(Started(job))
        if not jobs[0].keep_cache:
            drop_caches([jobs[0].out])
            touch_memory()
        if time.time() > begin:
            raise MeasureError("the ranks did not start in time")
        for each in started:
            each.go()
        results = [each.result() for each in started]
    finally:
        for each in started:
            each.end()
    seconds = max(result["ended_at"] for result in results) - begin
    samples = sum(result["samples"] for result in results)
    cpu = sum(result["cpu_s"] for result in results)
    return {"samples": samples, "seconds": seconds, "cpu_s": cpu, "bytes": sum(result["bytes"] for result in results)}
