"""A virtual machine with a real Linux kernel, driven over its serial console; and `dlfs serve` as a process."""

from __future__ import annotations

import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ["qemu-system-x86_64", "busybox", "cpio", "depmod", "fio", "mkfs.ext4", "xz", "flock", "apt-get", "dpkg"]
NQN = "nqn.2026-01.io.example:interop"
GUEST_HOST = "10.0.2.2"  # this machine's loopback, as the guest sees it
BOOT_S = 180


def missing() -> str | None:
    """Why there can be no machine here, or None."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if absent:
        return f"a virtual machine needs {', '.join(absent)} (apt-get install qemu-system-x86 busybox-static cpio kmod e2fsprogs fio xz-utils)"
    return None


def make(directory: pathlib.Path) -> str | None:
    """Makes kernel and initramfs unless they are there. Why it cannot be done, or None."""
    env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    made = subprocess.run([HERE / "make_machine.sh", directory], capture_output=True, text=True, env=env, timeout=600)
    if made.returncode == 0:
        return None
    if made.returncode == 3:
        return f"no virtual machine can be made here: {made.stderr.strip().splitlines()[-1]}"
    raise RuntimeError(f"make_machine.sh failed: {made.stdout}{made.stderr}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machine:
    """One boot. Port 4420 of the guest is 127.0.0.1:port here; packets of its network card go into `capture`; `parameters` are for its kernel.
    With `tap`, a tap interface that has the address GUEST_HOST, it is on that instead, and no port is forwarded."""

    def __init__(self, directory: pathlib.Path, capture: pathlib.Path | None = None, parameters: str = "", tap: str | None = None):
        self.port = free_port()
        self.log: list[str] = []
        network = f"tap,id=n0,ifname={tap},script=no,downscript=no" if tap else f"user,id=n0,hostfwd=tcp:127.0.0.1:{self.port}-:4420"
        dump = ["-object", f"filter-dump,id=dump,netdev=n0,file={capture}"] if capture else []
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024", "-nographic",
             "-no-reboot", "-nodefaults", "-serial", "stdio", "-kernel", directory / "vmlinuz", "-initrd", directory / "initrd.cpio",
             "-append", f"console=ttyS0 quiet panic=-1 mitigations=off {parameters}", "-netdev", network,
             "-device", "virtio-net-pci,netdev=n0", *dump],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.number = 0
        self.kernel = self._wait_for(re.compile(r"MACHINE-READY (\S+)"), BOOT_S)[0].group(1)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\r\n"))
        self.lines.put(None)

    def _wait_for(self, pattern: re.Pattern, timeout_s: float):
        seen, deadline = [], time.monotonic() + timeout_s
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the machine said nothing like {pattern.pattern} in {timeout_s} s; its log:\n" + "\n".join(self.log[-80:])) from None
            if line is None:
                raise AssertionError("the machine stopped; its log:\n" + "\n".join(self.log[-80:]))
            self.log.append(line)
            if found := pattern.search(line):
                return found, seen
            seen.append(line)

    def start(self, command: str) -> int:
        """Begins a command; finish() waits for it."""
        self.number += 1
        self.log.append(f"> {command}")
        self.process.stdin.write(f"{self.number} {command}\n")
        self.process.stdin.flush()
        return self.number

    def finish(self, number: int, timeout_s: float = 120, check: bool = True) -> str:
        found, seen = self._wait_for(re.compile(rf"MACHINE-DONE {number} (\d+)"), timeout_s)
        output = "\n".join(seen)
        assert not check or found.group(1) == "0", f"the command ended with {found.group(1)}:\n{output}\nlog:\n" + "\n".join(self.log[-60:])
        return output

    def run(self, command: str, timeout_s: float = 120, check: bool = True) -> str:
        return self.finish(self.start(command), timeout_s, check)

    # ---- what the guest's kernel says ----
    def complaints(self, since: str) -> list[str]:
        """Lines of the kernel's log about NVMe, block or file system at level warning or worse, after the mark `since`."""
        log = self.run("dmesg -r", 60).splitlines()
        begin = max((number for number, line in enumerate(log) if f"mark {since}" in line), default=-1) + 1
        worse = (re.match(r"<(\d+)>(.*)", line) for line in log[begin:])
        return [found.group(2) for found in worse if found and int(found.group(1)) % 8 <= 4 and re.search(r"nvme|blk|I/O|EXT4|digest", found.group(2))]

    def mark(self, name: str):
        self.run(f"echo 'mark {name}' > /dev/kmsg", 60)

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    # ---- the kernel's target in the guest ----
    def make_target(self):
        """Exports the guest's RAM disk of 128 MiB as namespace 1 of NQN on port 4420."""
        root = "/sys/kernel/config/nvmet"
        space = f"{root}/subsystems/{NQN}/namespaces/1"
        for command in (f"mkdir {root}/subsystems/{NQN} && echo 1 > {root}/subsystems/{NQN}/attr_allow_any_host",
                        f"mkdir {space} && echo /dev/ram0 > {space}/device_path && echo 1 > {space}/enable",
                        f"mkdir {root}/ports/1 && cd {root}/ports/1 && echo ipv4 > addr_adrfam && echo tcp > addr_trtype && echo 4420 > addr_trsvcid && echo 0.0.0.0 > addr_traddr"):
            self.run(command)
        self.open_target()

    def open_target(self):
        root = "/sys/kernel/config/nvmet"
        self.run(f"ln -s {root}/subsystems/{NQN} {root}/ports/1/subsystems/{NQN}")

    def close_target(self):
        """Removes the subsystem from the port, which ends all connections to it."""
        self.run(f"rm /sys/kernel/config/nvmet/ports/1/subsystems/{NQN}")

    def url(self, options: str = "") -> str:
        return f"nvme-tcp://127.0.0.1:{self.port}/{NQN}?nsid=1{options}"


class Serve:
    """`dlfs serve` on loopback."""

    def __init__(self, dlfs: str, *arguments: str, listen: str = "127.0.0.1:0"):
        self.told = tempfile.TemporaryFile("w+")  # not a pipe: nobody reads it meanwhile, and a full one would stop the target
        self.process = subprocess.Popen([dlfs, "serve", "--listen", listen, "-v", *arguments], stdout=subprocess.PIPE, stderr=self.told, text=True)
        self.urls = []
        for line in self.process.stdout:
            if line.strip() == "ready":
                break
            self.urls.append(line.strip())
        if not self.urls:
            self.told.seek(0)
            raise AssertionError(f"dlfs serve did not start: {self.told.read()}")
        self.port = int(re.search(r":(\d+)/", self.urls[0]).group(1))
        self.nqn = re.search(r"/(nqn[^?]*)", self.urls[0]).group(1)

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.told.close()
        return code
