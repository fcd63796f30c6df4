#!/usr/bin/env python3
"""Measures NVMe/TCP initiators and targets against each other on loopback, one core each, interleaved.

    bench/nvme_tcp.py [--dlfs build/release/bin/dlfs] [--spdk DIR] [--seconds 3] [--rounds 3] [--points 4KiB@128,...] [--json FILE]

Without --spdk it measures DLFS on both sides. With --spdk, the directory of a built SPDK (build/bin/nvmf_tgt,
build/bin/spdk_nvme_perf, scripts/rpc.py), four pairs are measured: each initiator against each target. Every round runs
all pairs of a point one after the other; ratios are medians of ratios within a round, because machines drift.
The target runs on core 0, the initiator on core 1 (--cores).
"""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

POINTS = "512@1,512@32,512@128,4KiB@1,4KiB@32,4KiB@128,128KiB@32,256KiB@32"
UNITS = {"": 1, "KiB": 1024, "MiB": 1 << 20}
NQN = "nqn.2016-06.io.spdk:bench"


def size_bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(KiB|MiB|)", text).groups()
    return int(number) * UNITS[unit]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class DlfsTarget:
    name = "dlfs serve"

    def __init__(self, dlfs: str, core: int, space: str):
        self.process = subprocess.Popen(["taskset", "-c", str(core), dlfs, "serve", "--listen", "127.0.0.1:0", space],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{dlfs} serve did not start: it said {self.url!r}")
        self.port = int(re.search(r":(\d+)/", self.url).group(1))
        self.nqn = self.url.split("/", 3)[3].split("?")[0]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)


class SpdkTarget:
    name = "SPDK target"

    def __init__(self, spdk: pathlib.Path, core: int, bdev: str):
        self.port, self.nqn = free_port(), NQN
        self.directory = tempfile.TemporaryDirectory()
        sock = f"{self.directory.name}/rpc.sock"
        self.process = subprocess.Popen([spdk / "build/bin/nvmf_tgt", "-m", f"[{core}]", "--no-huge", "-s", "1024", "--iova-mode", "va",
                                         "-r", sock], env=spdk_environment(spdk), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not os.path.exists(sock) and time.monotonic() < deadline:
            time.sleep(0.1)
        create = {"malloc": ["bdev_malloc_create", "-b", "b0", "256", "512"], "null": ["bdev_null_create", "b0", "1024", "512"]}[bdev]
        for call in (["nvmf_create_transport", "-t", "tcp", "-o", "-c", "4096"], create,
                     ["nvmf_create_subsystem", NQN, "-a", "-s", "BENCH1"], ["nvmf_subsystem_add_ns", NQN, "b0"],
                     ["nvmf_subsystem_add_listener", NQN, "-t", "tcp", "-a", "127.0.0.1", "-s", str(self.port)]):
            subprocess.run([sys.executable, spdk / "scripts/rpc.py", "-s", sock, *call], check=True, stdout=subprocess.DEVNULL)
        self.url = f"nvme-tcp://127.0.0.1:{self.port}/{NQN}?nsid=1"

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.directory.cleanup()


def spdk_environment(spdk: pathlib.Path) -> dict:
    return {**os.environ, "LD_LIBRARY_PATH": str(spdk / "build/lib")}


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def dlfs_initiator(arguments, target, size: int, depth: int) -> dict:
    command = ["taskset", "-c", str(arguments.cores[1]), arguments.dlfs, "bench", "device", target.url, "--op", "read", "--size", str(size),
               "--depth", str(depth), "--seconds", str(arguments.seconds), "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"iops": report["iops"], "cpu_us": report["cpu_s_per_million_ios"], "p50_us": report["p50_us"], "p99_us": report["p99_us"]}


def spdk_initiator(arguments, target, size: int, depth: int) -> dict:
    address = f"trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{target.port} subnqn:{target.nqn} ns:1"
    command = [arguments.spdk / "build/bin/spdk_nvme_perf", "--no-huge", "-s", "512", "-c", f"[{arguments.cores[1]}]", "-q", str(depth),
               "-o", str(size), "-w", "randread", "-t", str(arguments.seconds), "-r", address]
    output = subprocess.run(command, env=spdk_environment(arguments.spdk), check=True, capture_output=True, text=True, timeout=arguments.seconds + 30).stdout
    iops = float(re.search(r"^Total\s*:\s*([\d.]+)", output, re.M).group(1))
    return {"iops": iops, "cpu_us": 1e6 / iops}  # it polls: its core is busy all the time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dlfs", default=str(pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/dlfs"))
    parser.add_argument("--spdk", type=pathlib.Path, help="the directory of a built SPDK")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--points", default=POINTS, help=f"SIZE@DEPTH,... (default {POINTS})")
    parser.add_argument("--space", choices=["malloc", "null"], default="malloc", help="memory, or answers from a constant buffer")
    parser.add_argument("--cores", type=lambda text: [int(core) for core in text.split(",")], default=[0, 1])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    spaces = {"malloc": ("mem:256MiB", "malloc"), "null": ("null:1GiB", "null")}[arguments.space]
    targets = [DlfsTarget(arguments.dlfs, arguments.cores[0], spaces[0])]
    initiators = {"dlfs": dlfs_initiator}
    results = []
    try:
        if arguments.spdk:
            initiators["spdk"] = spdk_initiator
        for point in arguments.points.split(","):
            size, depth = size_bytes(point.split("@")[0]), int(point.split("@")[1])
            rows = {}
            for _ in range(arguments.rounds):
                for kind in ["dlfs", *(["spdk"] if arguments.spdk else [])]:
                    target = targets[0] if kind == "dlfs" else SpdkTarget(arguments.spdk, arguments.cores[0], spaces[1])
                    if kind == "spdk":  # it polls for ever, so it must not live while the other is measured
                        os.kill(targets[0].process.pid, signal.SIGSTOP)
                    try:
                        for name, run in initiators.items():
                            before = cpu_seconds(target.process.pid)
                            row = run(arguments, target, size, depth)
                            row["target_busy"] = (cpu_seconds(target.process.pid) - before) / arguments.seconds
                            rows.setdefault(f"{name} -> {target.name}", []).append(row)
                    finally:
                        if kind == "spdk":
                            target.stop()
                            os.kill(targets[0].process.pid, signal.SIGCONT)
            for pair, row in rows.items():
                median = {key: statistics.median(one[key] for one in row) for key in row[0]}
                results.append({"size": size, "depth": depth, "pair": pair, "rounds": row, **median})
                print(f"{point:>10}  {pair:<24} {median['iops']:>11,.0f} IOPS {median['iops'] * size / 1e6:>9,.0f} MB/s "
                      f"{median['cpu_us']:>7.2f} us CPU an I/O", flush=True)
            for side in ({t.split(" -> ")[1] for t in rows} if arguments.spdk else ()):
                ratio = [a["iops"] / b["iops"] for a, b in zip(rows[f"dlfs -> {side}"], rows[f"spdk -> {side}"])]
                cpu = [a["cpu_us"] / b["cpu_us"] for a, b in zip(rows[f"dlfs -> {side}"], rows[f"spdk -> {side}"])]
                print(f"{'':>10}  initiator dlfs / spdk against {side}: {statistics.median(ratio):.2f} IOPS, "
                      f"{statistics.median(cpu):.2f} CPU an I/O", flush=True)
            if arguments.spdk:
                ratio = [a["iops"] / b["iops"] for a, b in zip(rows["spdk -> dlfs serve"], rows["spdk -> SPDK target"])]
                print(f"{'':>10}  target dlfs / spdk under spdk_nvme_perf: {statistics.median(ratio):.2f} IOPS", flush=True)
    finally:
        os.kill(targets[0].process.pid, signal.SIGCONT)
        targets[0].stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
