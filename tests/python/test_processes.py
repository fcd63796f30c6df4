"""Signals, interpreter exit, forks: each in a process of its own, which must end by itself within a deadline."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

dlfs = pytest.importorskip("dlfs")
# Python 3.12 and later warn about what is under test here.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
COUNT = 2000
DEADLINE_S = 60


def run(code: str, *arguments: object) -> str:
    """Runs Python code and returns what it printed; fails when it does not end or ends badly."""
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert process.returncode == 0, f"exit status {process.returncode}\n{process.stdout}\n{process.stderr}"
    assert process.stderr == ""
    return process.stdout


@pytest.mark.parametrize("mode", ["chunk", "full"])
@pytest.mark.parametrize("keep", ["batches", "batch, batches", "ds, batch, batches", "view"])
def test_exit_with_a_half_read_epoch(volume_path, mode, keep):
    code = """
import sys, dlfs
ds = dlfs.mount(sys.argv[1])
batches = ds.batches(10, shuffle=sys.argv[2], epochs=None)
batch = next(batches)
view = batch["image"][3]
kept = [%s]
cycle = [kept]; cycle.append(cycle)
if %r == "view": del ds, batch
print(len(batch.ids) if "batch" in globals() else 10)
"""
    assert run(code % (keep, keep), volume_path, mode) == "10\n"


def test_exit_by_system_exit_and_by_an_exception(volume_path):
    code = "import sys, dlfs\nb = dlfs.mount(sys.argv[1]).batches(10, epochs=None)\nnext(b)\nsys.exit(0)"
    assert run(code, volume_path) == ""
    process = subprocess.run(
        [sys.executable, "-c", code.replace("sys.exit(0)", "1/0"), str(volume_path)],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert process.returncode == 1 and process.stderr.strip().endswith("ZeroDivisionError: division by zero")


def test_exit_while_daemon_threads_wait_and_read(volume_path):
    code = """
import sys, threading, dlfs
ds = dlfs.mount(sys.argv[1])
started = threading.Barrier(4)
def consume(mode):
    batches = ds.batches(10, shuffle=mode, epochs=None)
    started.wait()
    try:
        for batch in batches: batch["image"].tolist()
    except dlfs.Error as error:
        assert "closed" in str(error), error
for mode in ("chunk", "full", "sequential"):
    threading.Thread(target=consume, args=(mode,), daemon=True).start()
started.wait()
import time; time.sleep(0.3)
"""
    for _ in range(3):
        assert run(code, volume_path) == ""


@contextlib.contextmanager
def started(code: str, *arguments: object):
    """A process that runs code, from a moment after its first line of output on."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.3)
        yield process
    finally:
        process.kill()
        process.wait()


def interrupt(code: str, *arguments: object) -> tuple[int, str, float]:
    """Returns exit status, stderr, and how long it lived on after SIGINT."""
    with started(code, *arguments) as process:
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=DEADLINE_S)
        return process.returncode, stderr, time.monotonic() - start


def test_ctrl_c_ends_an_endless_epoch(volume_path):
    code = """
import sys, dlfs
ds = dlfs.mount(sys.argv[1])
print("ready")
for batch in ds.batches(64, epochs=None): pass
"""
    status, stderr, seconds = interrupt(code, volume_path)
    assert status == -signal.SIGINT and "KeyboardInterrupt" in stderr and seconds < 5


STALLING_DEVICE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
struct io_uring;
struct io_uring_params;
int io_uring_queue_init_params(unsigned n, struct io_uring* ring, struct io_uring_params* p) { return -1; }
typedef ssize_t (*pread_function)(int, void*, size_t, off_t);
static ssize_t read_slowly(const char* symbol, int fd, void* into, size_t n, off_t at) {
  while (access(getenv("STALL_FILE"), F_OK) == 0) usleep(10000);
  return ((pread_function)dlsym(RTLD_NEXT, symbol))(fd, into, n, at);
}
ssize_t pread(int fd, void* into, size_t n, off_t at) { return read_slowly("pread", fd, into, n, at); }
ssize_t pread64(int fd, void* into, size_t n, off_t at) { return read_slowly("pread64", fd, into, n, at); }
"""


def test_ctrl_c_interrupts_a_wait_for_a_device_that_does_not_answer(volume_path, tmp_path, monkeypatch):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a stalling device with")
    (tmp_path / "stall.c").write_text(STALLING_DEVICE)
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", tmp_path / "stall.so", tmp_path / "stall.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "stall.so"))
    monkeypatch.setenv("STALL_FILE", str(tmp_path / "stalled"))
    code = """
import os, sys, threading, time, dlfs
ds = dlfs.mount(sys.argv[1], timeout=1000)
batches = ds.batches(100, shuffle="full", epochs=None, cache_bytes=1 << 20, prefetch_batches=1)
next(batches)
turns = []
threading.Thread(target=lambda: [turns.append(time.sleep(0.01)) for _ in range(500)], daemon=True).start()
open(os.environ["STALL_FILE"], "w").close()
print("ready", flush=True)
try:
    for batch in batches: pass
except KeyboardInterrupt:
    print("interrupted", len(turns) > 5, flush=True)
finally:
    os.unlink(os.environ["STALL_FILE"])
"""
    with started(code, volume_path) as process:
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, stderr = process.communicate(timeout=DEADLINE_S)
    assert output == "interrupted True\n" and stderr == "" and process.returncode == 0 and time.monotonic() - start < 5


def test_ctrl_c_in_a_writer_leaves_nothing(tmp_path):
    code = """
import sys, dlfs
with dlfs.Writer(sys.argv[1]) as writer:
    writer.write({"x": b"0" * 1000})
    print("ready")
    while True: writer.write({"x": b"1" * 1000})
"""
    status, stderr, _ = interrupt(code, tmp_path / "v.dlfs")
    assert status == -signal.SIGINT and "KeyboardInterrupt" in stderr and not list(tmp_path.iterdir())


def test_exit_with_an_open_writer_leaves_nothing(tmp_path):
    code = "import sys, dlfs\nw = dlfs.Writer(sys.argv[1])\nw.write({'x': 1})\nkeep = [w]; keep.append(keep)"
    run(code, tmp_path / "v.dlfs")
    assert not list(tmp_path.iterdir())


def in_child(work) -> None:
    """Runs work() in a forked child, which must end well within the deadline."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the forked child hangs")


def test_a_forked_child_goes_on_reading(ds, image, name):
    assert ds[1]["image"] == image(1)
    file = ds.open(11)

    def work():
        assert ds[2]["image"] == image(2) and ds[name(3)]["image"] == image(3)
        assert ds[[4, 5]]["image"].tolist() == [image(4), image(5)]
        assert file.read() == image(11)
        assert sum(len(batch) for batch in ds.batches(100)) == COUNT

    in_child(work)
    in_child(lambda: in_child(work))
    assert ds[6]["image"] == image(6)


@pytest.mark.parametrize("mode", ["chunk", "full"])
def test_batches_of_the_parent_are_refused_in_a_child_and_go_on_in_the_parent(ds, mode):
    batches = ds.batches(50, shuffle=mode)
    first = next(batches)

    def work():
        nonlocal first, batches
        for use in (batches.__next__, batches.state, batches.stat):
            with pytest.raises(dlfs.ForkedError, match="parent"):
                use()
        assert first["label"].tolist() == first.ids.tolist()
        batches.close()
        del first, batches

    in_child(work)
    assert len(first) + sum(len(batch) for batch in batches) == COUNT


def test_a_child_forked_while_readers_run_hangs_nowhere(ds, image):
    stop = threading.Event()

    def consume():
        while not stop.is_set():
            for batch in ds.batches(64, shuffle="full"):
                batch["label"].sum()
                if stop.is_set():
                    break

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_child(lambda: ds[5]["image"] == image(5) or pytest.fail("wrong bytes"))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_writer_of_the_parent_is_refused_in_a_child(tmp_path):
    with dlfs.Writer(tmp_path / "v.dlfs") as writer:
        writer.write({"x": 1})

        def work():
            nonlocal writer
            with pytest.raises(dlfs.ForkedError):
                writer.write({"x": 2})
            writer.abort()

        in_child(work)
        writer.write({"x": 3})
    assert dlfs.mount(tmp_path / "v.dlfs")[:]["x"].tolist() == [1, 3]


def test_threads_take_turns_at_one_iterator(ds):
    batches, seen, lock = ds.batches(10, shuffle="full"), [], threading.Lock()

    def consume():
        for batch in batches:
            with lock:
                seen.extend(batch.ids.tolist())

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(COUNT))


def test_other_threads_run_while_one_waits(ds):
    """The GIL is free during a wait: closing from another thread ends it."""
    batches = ds.batches(100, epochs=None, shuffle="full")
    seen = []

    def consume():
        try:
            for batch in batches:
                seen.append(batch.number)
        except dlfs.Error as error:
            seen.append(str(error))

    thread = threading.Thread(target=consume)
    thread.start()
    time.sleep(0.2)
    batches.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive() and "closed" in str(seen[-1])
