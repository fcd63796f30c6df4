#!/usr/bin/env python3
"""Ext4 over the Linux kernel's NVMe/TCP initiator against DLFS's, in one virtual machine, against one target.

The guest has two processors and the kernel of the interoperability tests. `dlfs serve` on this machine exports for each
sample size two namespaces in memory with the same bytes: an Ext4 image with one file a sample and one packed file, and a
DLFS volume. In the guest, bench/guest_reader reads them in random order, cold, and checks every byte:

  ext4 files            open, read, close, one file a sample, in a plain loop
  ext4 files x8         the same by 8 threads
  ext4 packed           pread at random offsets of one file with all samples, through the page cache
  ext4 packed direct    the same with O_DIRECT
  dlfs chunk, dlfs full whole epochs of the volume; each has its own connection and begins with an empty cache

Processor time is that of the whole guest, because the kernel's initiator works in threads of the kernel. Why `dlfs serve`
is the target: it runs outside the guest, so that the guest's processors do an initiator's work only; the kernel's own
target could run in the guest alone.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))
import machine as machines  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
COUNTS = {512: 32768, KIB: 32768, 4 * KIB: 24576, 16 * KIB: 4096, 128 * KIB: 512, MIB: 48}
QUICK_SIZES = [512, 4 * KIB, 128 * KIB]
EXT4 = {"ext4 files": "files /mnt/f", "ext4 files x8": "files /mnt/f --threads 8", "ext4 packed": "packed /mnt/packed", "ext4 packed direct": "packed /mnt/packed --align 4096"}
DLFS = {"dlfs chunk": "chunk", "dlfs full": "full"}
QUEUES = [1, 2]
CANNOT = 3  # the exit code when no virtual machine can be had here
TAP = "tap0"
COMMAND_S = 120
CALM_CLOCK = "tsc=reliable"  # else the guest reads an emulated timer chip at every look at the clock, at 10 us or more


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def size_text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog="example: bench/guest.py --quick")
    parser.add_argument("--quick", action="store_true", help="three sizes, two short rounds: under three minutes")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench/guest.json", help="the results as JSON (default: build/bench/guest.json)")
    parser.add_argument("--dlfs", type=pathlib.Path, default=ROOT / "build/release/bin/dlfs", help="the dlfs command; guest_reader lies beside it (default: build/release/bin/dlfs)")
    parser.add_argument("--sizes", help="bytes a sample, separated by commas (default: 512 to 1048576)")
    parser.add_argument("--most-samples", type=int, default=1 << 30, help="the most samples of a size")
    parser.add_argument("--rounds", type=int, help="interleaved repetitions (default: 3; --quick: 2)")
    parser.add_argument("--seconds", type=float, help="when a reader of Ext4 stops within an epoch (default: 2; --quick: 1); DLFS reads whole epochs for half of it or longer")
    parser.add_argument("--network", choices=["tap", "user"], help="the guest's network card: on a tap interface in a network namespace of its own, or on QEMU's user-mode TCP (default: tap where it can be had)")
    parser.add_argument("--work", type=pathlib.Path, help="where the namespaces lie while it runs (default: a new folder in /dev/shm)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # already in a network namespace with a tap
    arguments = parser.parse_args()
    arguments.sizes = [int(size) for size in arguments.sizes.split(",")] if arguments.sizes else QUICK_SIZES if arguments.quick else list(COUNTS)
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 3)
    arguments.seconds = arguments.seconds or (1.0 if arguments.quick else 2.0)
    unknown = [size for size in arguments.sizes if size not in COUNTS]
    if unknown:
        parser.error(f"--sizes: there are {', '.join(map(str, COUNTS))}, not {unknown[0]}")
    return arguments


# ---- what is needed ----


def machine_directory() -> pathlib.Path:
    return pathlib.Path(os.environ.get("DLFS_MACHINE", ROOT / ".cache" / "machine"))


def reader_of(dlfs: pathlib.Path) -> pathlib.Path:
    return dlfs.resolve().parent / "guest_reader"


def cannot_run(arguments: argparse.Namespace) -> str | None:
    """Why not, or None when the machine is made and all programs are there."""
    for program in (arguments.dlfs, reader_of(arguments.dlfs)):
        if not os.access(program, os.X_OK):
            return f"{program} is not built: run ./dev build, or name the dlfs command with --dlfs"
    return machines.missing() or machines.make(machine_directory())


def in_namespace(command: list[str]) -> list[str]:
    """The command in a new network namespace that holds a tap with the address the guest expects. Nothing of it outlives the command."""
    setup = f"ip link set lo up && ip tuntap add {TAP} mode tap && ip addr add {machines.GUEST_HOST}/24 dev {TAP} && ip link set {TAP} up"
    return ["unshare", "--map-root-user", "--net", "sh", "-c", f'{setup} && exec "$@"', "sh", *command]


def enter_namespace(arguments: argparse.Namespace) -> None:
    """Goes on as a new process in a namespace with a tap; returns where that cannot be had and was not asked for."""
    if arguments.network == "user" or arguments.inside:
        return
    try:
        trial = subprocess.run(in_namespace(["true"]), capture_output=True, text=True)
        why = trial.stderr.strip() if trial.returncode else None
    except FileNotFoundError as error:
        why = str(error)
    if why is None:
        sys.stdout.flush()
        command = in_namespace([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--inside"])
        os.execvp(command[0], command)
    if arguments.network == "tap":
        sys.exit(f"guest: no tap interface can be had here ({why}): leave --network tap out to use QEMU's user-mode network")
    say(f"guest: QEMU's user-mode network, since no tap interface can be had here ({why})")


def guest_image(arguments: argparse.Namespace, work: pathlib.Path) -> pathlib.Path:
    """The interoperability tests' machine, with dlfs and guest_reader in /opt: a second archive behind its initramfs."""
    root, directory = work / "root", work / "machine"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for folder in (root / "opt", libraries, directory):
        folder.mkdir(parents=True)
    for program in (arguments.dlfs, reader_of(arguments.dlfs)):
        subprocess.run(["strip", "-o", root / "opt" / program.name, program], check=True)
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for line in linked.splitlines():
            if " => /" in line:
                shutil.copy(line.split(" => ")[1].split()[0], libraries)
    archive = subprocess.run("find . | cpio -o -H newc --quiet --owner 0:0", shell=True, cwd=root, capture_output=True, check=True).stdout
    (directory / "initrd.cpio").write_bytes((machine_directory() / "initrd.cpio").read_bytes() + archive)
    (directory / "vmlinuz").symlink_to((machine_directory() / "vmlinuz").resolve())
    shutil.rmtree(root)
    return directory


# ---- the data ----


class Space:
    """The samples of one size, in an Ext4 image and in a volume: namespaces `ext4_id` and `volume_id`."""

    def __init__(self, size: int, count: int, number: int, work: pathlib.Path):
        self.size, self.count = size, count
        self.ext4_id, self.volume_id = 2 * number + 1, 2 * number + 2
        self.image, self.volume = work / f"{size}.ext4", work / f"{size}.dlfs"

    def make(self, dlfs: pathlib.Path, work: pathlib.Path) -> None:
        source = work / "source"
        (source / "f").mkdir(parents=True)
        subprocess.run([reader_of(dlfs), "make", source / "f", "--packed", source / "packed", *self.shape()], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([dlfs, "pack", source / "f", self.volume, "--quiet"], check=True)
        blocks = self.count * (-(-self.size // 4096) + 1) + self.count * self.size // 4096
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-N", str(self.count + 1000), "-E", "lazy_itable_init=0,lazy_journal_init=0",
                        "-d", source, self.image, str(blocks + 12000)], check=True, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        shutil.rmtree(source)

    def shape(self) -> list[str]:
        return ["--count", str(self.count), "--bytes", str(self.size)]


# ---- measuring ----


class Run:
    """One booted guest and its target."""

    def __init__(self, arguments: argparse.Namespace, spaces: list[Space], guest: machines.Machine, serve: machines.Serve):
        self.arguments, self.spaces, self.guest, self.serve = arguments, spaces, guest, serve
        self.rows: dict[tuple[str, int, int], dict[str, Any]] = {}
        self.unverified: dict[tuple[str, int, int], dict[str, Any]] = {}
        self.raw: dict[tuple[str, int, int], dict[str, Any]] = {}

    def everything(self) -> None:
        for number in range(self.arguments.rounds):
            for queues in QUEUES if number % 2 == 0 else QUEUES[::-1]:
                device = self._connect(queues)
                for space in self.spaces:
                    say(f"round {number + 1} of {self.arguments.rounds}, {queues} queue{'s' * (queues > 1)}, {size_text(space.size)}")
                    self._one_size(space, device, queues, number)
                self._raw(device, queues)
                self.guest.run("nvme disconnect-all", COMMAND_S)

    def _connect(self, queues: int) -> str:
        """Connects the kernel's initiator with exactly so many I/O queues; the controller's name."""
        self.guest.run(f"nvme connect -t tcp -a {machines.GUEST_HOST} -s {self.serve.port} -n {self.serve.nqn} -i {queues}", COMMAND_S)
        last = self.spaces[-1].volume_id
        found = self.guest.run(f"for i in $(seq 200); do for c in /sys/class/nvme/nvme*; do n=${{c##*/}}; [ -b /dev/${{n}}n{last} ] && echo $n && cat $c/queue_count && exit 0; done; sleep 0.1; done; exit 1", COMMAND_S)
        name, count = found.split()[-2:]
        assert int(count) == queues + 1, f"the kernel made {int(count) - 1} I/O queues, not {queues}"
        return name

    def _one_size(self, space: Space, device: str, queues: int, number: int) -> None:
        self.guest.run(f"mount -o ro,noatime /dev/{device}n{space.ext4_id} /mnt", COMMAND_S)
        readers = list(EXT4) + list(DLFS)
        turn = number % len(readers)
        for reader in readers[turn:] + readers[:turn]:
            if reader in EXT4:
                self._measure(self.rows, space, reader, queues, f"{EXT4[reader]} --seconds {self.arguments.seconds} --seed {number + 1}")
            else:
                self._measure(self.rows, space, reader, queues, self._volume(space, reader, queues, number))
        for reader in DLFS:
            self._measure(self.unverified, space, reader, queues, self._volume(space, reader, queues, number) + " --no-verify")
        self.guest.run("umount /mnt", COMMAND_S)

    def _volume(self, space: Space, reader: str, queues: int, number: int) -> str:
        url = f"{self._url(space.volume_id)}&queues={queues}"
        return f"{DLFS[reader]} {shlex.quote(url)} --seconds {self.arguments.seconds / 2:.3f} --seed {number + 1}"

    def _url(self, namespace: int) -> str:
        return f"nvme-tcp://{machines.GUEST_HOST}:{self.serve.port}/{self.serve.nqn}?nsid={namespace}"

    def _measure(self, rows: dict, space: Space, reader: str, queues: int, options: str) -> None:
        """One reader, once. guest_reader fails at the first wrong byte, and so does this."""
        output = self.guest.run(f"/opt/guest_reader {options} --cold {' '.join(space.shape())}", COMMAND_S + 20 * self.arguments.seconds)
        got = json.loads(output[output.index("{"):])
        row = rows.setdefault((reader, space.size, queues), {
            "reader": reader, "sample_bytes": space.size, "queues": queues, "samples_per_s": [], "cpu_s_per_million": [],
            "samples": [], "distinct": [], "whole_epochs": [], "of": space.count, "elapsed_s": [], "open_s": [], "device_bytes": [],
        })  # fmt: skip
        row["samples_per_s"].append(got["samples"] / got["elapsed_s"])
        row["cpu_s_per_million"].append(got["busy_s"] / got["samples"] * 1e6)
        row["whole_epochs"].append(got["epochs"])
        for key in ("samples", "distinct", "elapsed_s", "open_s", "device_bytes"):
            row[key].append(got[key])

    def _raw(self, device: str, queues: int) -> None:
        """What each initiator gets from the largest namespace without a file system."""
        space = max(self.spaces, key=lambda each: each.image.stat().st_size)
        seconds = max(0.5, self.arguments.seconds / 2)
        for size, depth in ((4 * KIB, 128), (256 * KIB, 32)):
            output = self.guest.run(f"/opt/dlfs bench device {shlex.quote(self._url(space.ext4_id))} --size {size} --depth {depth} --queues {queues} --seconds {seconds} --json", COMMAND_S)
            ours = json.loads(output[output.index("{"):])["iops"]
            output = self.guest.run(f"fio --name=r --filename=/dev/{device}n{space.ext4_id} --rw=randread --bs={size} --iodepth={depth} --direct=1 --ioengine=io_uring "
                                    f"--thread --runtime={max(1, round(seconds))} --time_based --output-format=json", COMMAND_S)  # fmt: skip
            theirs = json.loads(output[output.index("{\n"):output.rindex("}") + 1])["jobs"][0]["read"]["iops"]
            for initiator, rate in (("dlfs bench device", ours), ("kernel, fio", theirs)):
                self.raw.setdefault((initiator, size, queues), {"initiator": initiator, "request_bytes": size, "depth": depth, "queues": queues, "reads_per_s": []})["reads_per_s"].append(rate)


# ---- the report ----


def environment(arguments: argparse.Namespace, guest: machines.Machine) -> dict[str, Any]:
    def first(command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else "unknown"

    models = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "dlfs": first([str(arguments.dlfs), "--version"]), "commit": first(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]),
        "qemu": first(["qemu-system-x86_64", "--version"]), "acceleration": "none: QEMU's software emulation (TCG), -cpu max, 2 processors, 1 GiB",
        "kvm": kvm_text(), "network": "tap" if arguments.inside else "QEMU's user-mode TCP",
        "guest_kernel": guest.kernel, "guest_clock": guest.run("cat /sys/devices/system/clocksource/clocksource0/current_clocksource").split()[-1],
        "target": "dlfs serve on this machine, 1 poller, files in memory (tmpfs)", "host_kernel": platform.release(),
        "host_processor": models[0] if models else platform.machine(), "host_processors": len(os.sched_getaffinity(0)), "host_load_before": list(os.getloadavg()),
        "rounds": arguments.rounds, "seconds": arguments.seconds,
    }  # fmt: skip


def kvm_text() -> str:
    if not os.path.exists("/dev/kvm"):
        return "not available: there is no /dev/kvm"
    return "not used: /dev/kvm is there, but the machine of the interoperability tests is always emulated"


def distortions(network: str) -> str:
    card = (
        "The network card is a tap, so that a send of 64 KiB costs one passage through the emulator. "
        if network == "tap" else
        "QEMU's user-mode TCP takes 1,460 bytes a packet and is the bottleneck for large reads: it hides how much faster one initiator is than the other. "
    )  # fmt: skip
    return (
        "The guest's processors are emulated in software, 10 to 50 times slower than real ones, and share the host's cores with the target and the emulated network card: "
        "only figures of the same run compare, and only as ratios. "
        "The emulator computes the CRC32C instruction bit by bit, at some 150 MB/s instead of 10 to 20 GB/s. DLFS verifies every sample with it, Ext4 verifies no data: that weighs the more on DLFS the larger the samples are "
        "(\"unverified\" has the same runs without). "
        "A system call, a page fault, an interrupt between processors and a wake-up cost relatively more than on real hardware, copying less: that weighs on Ext4, with several of them a sample. "
        + card +
        "There is no wire and no drive: latency is the emulator's, which depresses readers with one request in flight. "
        "The kernel's clock is told that the time-stamp counter is reliable (tsc=reliable), as on real hardware; the guest would otherwise read an emulated timer chip. "
        "Opening is left out for both: mount of Ext4, and mount of the volume (open_s). Each DLFS epoch includes its connections and the first touch of its cache memory. "
        "A reader of Ext4 stops after the given seconds, within an epoch (see samples, of): the buffered packed file's later samples would find more of their pages already read."
    )  # fmt: skip


def median_of(rows: dict, reader: str, size: int, queues: int, field: str) -> float:
    return statistics.median(rows[reader, size, queues][field])


def ratios(rows: dict, reader: str, size: int) -> dict[str, float]:
    """DLFS to Ext4, one file a sample: medians of ratios within a round, each with its better number of queues."""
    def best(which: str) -> list[float]:
        return max((rows[which, size, queues]["samples_per_s"] for queues in QUEUES), key=statistics.median)

    def against(theirs: str) -> float:
        return statistics.median(a / b for a, b in zip(best(reader), best(theirs)))

    return {"files": against("ext4 files"), "files_x8": against("ext4 files x8")}


def table(run: Run) -> str:
    readers = list(EXT4) + list(DLFS)
    lines = ["samples/s (CPU-seconds of the guest a million samples), medians", f"{'':<20}" + "".join(f"{size_text(space.size):>20}" for space in run.spaces)]
    for reader in readers:
        for queues in QUEUES:
            cells = [(median_of(run.rows, reader, s.size, queues, "samples_per_s"), median_of(run.rows, reader, s.size, queues, "cpu_s_per_million")) for s in run.spaces]
            lines.append(f"{reader + ', ' + str(queues) + 'q':<24}" + "".join(f"{f'{rate:,.0f} ({cpu:,.0f})':>20}" for rate, cpu in cells)[4:])
    for reader in DLFS:
        found = [ratios(run.rows, reader, space.size) for space in run.spaces]
        for key, what in (("files", "files"), ("files_x8", "files x8")):
            lines.append(f"{f'{reader} / {what}':<24}" + "".join(f"{f'{each[key]:.1f} times':>20}" for each in found)[4:])
    for reader in DLFS:
        cells = [max(median_of(run.unverified, reader, s.size, queues, "samples_per_s") for queues in QUEUES) for s in run.spaces]
        lines.append(f"{reader + ', no check':<24}" + "".join(f"{f'{rate:,.0f}':>20}" for rate in cells)[4:])
    for raw in run.raw.values():
        rate = statistics.median(raw["reads_per_s"])
        lines.append(f"raw: {raw['initiator']}, {size_text(raw['request_bytes'])} at depth {raw['depth']}, {raw['queues']} queues: {rate:,.0f} reads/s, {rate * raw['request_bytes'] / 1e6:,.0f} MB/s")
    return "\n".join(lines)


def write(arguments: argparse.Namespace, run: Run, facts: dict[str, Any]) -> None:
    results = {
        "rows": list(run.rows.values()), "unverified": list(run.unverified.values()), "raw": list(run.raw.values()),
        "ratios": [{"reader": reader, "sample_bytes": space.size, **ratios(run.rows, reader, space.size)} for reader in DLFS for space in run.spaces],
        "environment": facts, "distortions": distortions(facts["network"]),
    }  # fmt: skip
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def measure(arguments: argparse.Namespace, work: pathlib.Path) -> None:
    spaces = [Space(size, min(COUNTS[size], arguments.most_samples), number, work) for number, size in enumerate(arguments.sizes)]
    for space in spaces:
        say(f"preparing {space.count} samples of {size_text(space.size)}")
        space.make(arguments.dlfs, work)
    directory = guest_image(arguments, work)
    tap = TAP if arguments.inside else None
    listen = f"{machines.GUEST_HOST if tap else '127.0.0.1'}:0"
    serve = machines.Serve(str(arguments.dlfs), "--read-only", *(str(path) for space in spaces for path in (space.image, space.volume)), listen=listen)
    try:
        say("booting the guest, emulated" + (f", network on a tap ({kvm_text()})" if tap else f" ({kvm_text()})"))
        guest = machines.Machine(directory, parameters=CALM_CLOCK, tap=tap)
        try:
            facts = environment(arguments, guest)
            run = Run(arguments, spaces, guest, serve)
            start = time.monotonic()
            run.everything()
            facts["measured_s"] = time.monotonic() - start
        finally:
            guest.stop()
    finally:
        serve.stop()
    write(arguments, run, facts)
    print(table(run))


def main() -> int:
    arguments = parse()
    if not arguments.inside:
        if why := cannot_run(arguments):
            print(f"guest: not measured: {why}", file=sys.stderr)
            return CANNOT
        enter_namespace(arguments)
    shared = pathlib.Path("/dev/shm")
    parent = arguments.work or (shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2 << 30 else None)
    with tempfile.TemporaryDirectory(prefix="dlfs-guest-", dir=parent) as work:
        measure(arguments, pathlib.Path(work))
    say(f"written: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
