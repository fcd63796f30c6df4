"""The Linux kernel's NVMe/TCP initiator, in a virtual machine, with `dlfs serve` as its target."""

import json
import re
import signal
import time

import pytest

from machine import GUEST_HOST, Serve

pytestmark = pytest.mark.usefixtures("content")
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-1111-1111-111111111111"


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "space.img"
    path.touch()
    with open(path, "r+b") as file:
        file.truncate(96 << 20)
    return path


@pytest.fixture
def served(dlfs, image, machine):
    serve = Serve(dlfs, str(image))
    try:
        yield serve
    finally:
        machine.run("umount /mnt 2>/dev/null; nvme disconnect-all", 60, check=False)
        serve.stop()


def connect(machine, serve, options=""):
    machine.run(f"nvme connect -t tcp -a {GUEST_HOST} -s {serve.port} -n {serve.nqn} -i 2 {options}", 60)
    return machine.run(f"for i in $(seq 200); do for d in /dev/nvme*n1; do [ -b $d ] && basename $d && exit 0; done; sleep 0.1; done; exit 1", 60).split()[-1]


def nvme_json(machine, command):
    output = machine.run(f"nvme {command} -o json", 60)
    return json.loads(output[output.index("{"):])


def test_what_nvme_cli_asks_for(machine, served):
    log = machine.run(f"nvme discover -t tcp -a {GUEST_HOST} -s {served.port}", 60)
    assert served.nqn in log and "subtype: nvme subsystem" in log
    device = connect(machine, served)
    listed = machine.run("nvme list", 60)
    assert "DLFS target" in listed and f"/dev/{device}" in listed
    controller = nvme_json(machine, f"id-ctrl /dev/{device}")
    assert controller["subnqn"] == served.nqn and controller["mn"].strip() == "DLFS target"
    assert controller["ioccsz"] >= 4 and controller["kas"] > 0
    namespace = nvme_json(machine, f"id-ns /dev/{device}")
    assert namespace["nsze"] * (1 << namespace["lbafs"][0]["ds"]) == 96 << 20
    assert "uuid" in machine.run(f"nvme ns-descs /dev/{device}", 60)
    assert "critical_warning" in machine.run(f"nvme smart-log /dev/{device}", 60)
    assert machine.run(f"nvme list-ns /dev/{device}", 60).count("[") == 1
    machine.run(f"nvme error-log /dev/{device}", 60)
    machine.run(f"nvme ana-log /dev/{device}", 60)
    machine.run(f"nvme get-feature /dev/{device} -f 7", 60)


@pytest.mark.parametrize("digests", ["", "--hdr-digest --data-digest"])
def test_ext4_holds_what_was_written(machine, served, digests):
    device = connect(machine, served, digests)
    machine.run(f"mkfs.ext4 -q /dev/{device} && mount /dev/{device} /mnt", 120)
    machine.run("mkdir /mnt/d && for i in $(seq 200); do dd if=/dev/urandom of=/mnt/d/$i bs=$((i * 53)) count=7 2>/dev/null; done && cp /bin/busybox /mnt/", 180)
    sums = machine.run("cd /mnt && find . -type f | sort | xargs sha256sum > /tmp/sums && sync && wc -l < /tmp/sums", 120)
    assert int(sums.split()[-1]) == 201
    machine.run(f"umount /mnt && echo 3 > /proc/sys/vm/drop_caches && mount /dev/{device} /mnt", 60)
    checked = machine.run("cd /mnt && sha256sum -c /tmp/sums | grep -c OK", 120)
    assert checked.split()[-1] == "201"


def test_fio_verifies_what_it_wrote(machine, served):
    device = connect(machine, served, "--data-digest")
    output = machine.run(
        f"fio --name=v --filename=/dev/{device} --rw=randwrite --bsrange=512-131072 --bs_unaligned=0 --size=24M --io_size=24M --ioengine=psync --direct=1 "
        "--verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=5 --output-format=terse", 240)
    assert not re.search("verify.*(bad|failed)|bad magic", output, re.IGNORECASE), output


# The kernel's words when a connection is lost.
@pytest.mark.complaints(r"starting error recovery", r"no usable path - requeuing I/O", r"Failed reconnect attempt", r"failed to connect (socket|queue)",
                        r"failed to send request", r"rescheduling|Reconnecting", r"I/O .* (timeout|QID)")
def test_reconnects_after_the_target_restarts(dlfs, machine, image):
    serve = Serve(dlfs, str(image))
    again = None
    try:
        device = connect(machine, serve, "--keep-alive-tmo=5 --reconnect-delay=1")
        machine.run(f"mkfs.ext4 -q /dev/{device} && mount /dev/{device} /mnt", 120)
        writing = machine.start(
            "for i in $(seq 60); do dd if=/dev/urandom of=/mnt/f$i bs=65536 count=4 conv=fsync 2>/dev/null || exit 1; sleep 0.1; done; cd /mnt && sha256sum f* > /tmp/sums")
        time.sleep(1)
        assert serve.stop() == 0
        time.sleep(1)
        again = Serve(dlfs, "--nqn", serve.nqn, str(image), listen=f"127.0.0.1:{serve.port}")
        machine.finish(writing, 180)
        assert "reconnected" in machine.run("dmesg | grep -i 'successfully reconnected'", 30)
        machine.run(f"umount /mnt && echo 3 > /proc/sys/vm/drop_caches && mount /dev/{device} /mnt", 60)
        assert machine.run("cd /mnt && sha256sum -c /tmp/sums | grep -c OK", 120).split()[-1] == "60"
    finally:
        machine.run("umount /mnt 2>/dev/null; nvme disconnect-all", 60, check=False)
        serve.stop(signal.SIGKILL)
        if again:
            again.stop()


def test_a_read_only_space_refuses_writes(dlfs, machine, image):
    serve = Serve(dlfs, "--read-only", str(image))
    try:
        device = connect(machine, serve)
        assert machine.run(f"cat /sys/block/{device}/ro", 30).split()[-1] == "1"
        machine.run(f"dd if=/dev/{device} of=/dev/null bs=1M count=4 2>/dev/null", 60)
        refused = machine.run(f"dd if=/dev/zero of=/dev/{device} bs=4096 count=1 oflag=direct; echo code $?", 60)
        assert "code 0" not in refused and "Operation not permitted" in refused, refused
        # The kernel does not even try; the target is asked past it.
        raw = machine.run(f"nvme write /dev/{device} -s 0 -c 0 -z 4096 -d /bin/busybox; echo code $?", 60)
        assert "code 0" not in raw and "Namespace is Write Protected" in raw, raw
    finally:
        machine.run("nvme disconnect-all", 60, check=False)
        serve.stop()


@pytest.mark.complaints(r"Connect for subsystem \S+ is not allowed, hostnqn: \S+1111", r"failed to connect queue: 0 ret=16772")
def test_a_host_that_is_not_listed_is_refused(dlfs, machine, image):
    serve = Serve(dlfs, "--host", "nqn.someone:else", str(image))
    try:
        refused = machine.run(f"nvme connect -t tcp -a {GUEST_HOST} -s {serve.port} -n {serve.nqn}; echo code $?", 60, check=False)
        assert "code 0" not in refused
        assert "is not allowed" in machine.run("dmesg | grep 'Connect for subsystem'", 60)  # status and reason are the specification's
    finally:
        serve.stop()
    serve = Serve(dlfs, "--host", HOSTNQN, str(image))
    try:
        connect(machine, serve)
    finally:
        machine.run("nvme disconnect-all", 60, check=False)
        serve.stop()
