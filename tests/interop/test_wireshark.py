"""Wireshark's dissector reads what DLFS says, as initiator and as target, without a complaint."""

import collections
import subprocess
import time

from machine import GUEST_HOST, Serve

# NVMe/TCP Transport 1.0, 3.6.2.1; as tshark prints nvme-tcp.type.
IC_REQ, IC_RESP, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T = 0, 1, 4, 5, 6, 7, 9


def tshark_fields(tshark, capture, ports, wanted, *fields):
    decode = [word for port in ports for word in ("-d", f"tcp.port=={port},nvme-tcp")]
    check = ["-o", "nvme-tcp.check_hdgst:TRUE", "-o", "nvme-tcp.check_ddgst:TRUE"]  # off by default
    output = subprocess.run([tshark, "-r", capture, *decode, *check, "-Y", wanted, "-T", "fields", *[word for field in fields for word in ("-e", field)]],
                            capture_output=True, text=True, timeout=300)
    assert output.returncode == 0, output.stderr
    return [line.split("\t") for line in output.stdout.splitlines()]


def test_every_frame_of_both_directions_is_known(machine, dlfs, tshark, capture, tmp_path):
    (tmp_path / "source" / "a").mkdir(parents=True)
    for number in range(40):
        (tmp_path / "source" / "a" / f"{number}").write_bytes(bytes([number]) * (number * 999))
    image = tmp_path / "space.img"
    image.touch()
    with open(image, "r+b") as file:
        file.truncate(32 << 20)
    # DLFS as initiator, the kernel as target.
    machine.make_target()
    for options in ("", "&header_digest=on&data_digest=on"):
        url = machine.url(options)
        for command in (["identify", url], ["discover", f"127.0.0.1:{machine.port}"], ["pack", tmp_path / "source", url, "--force"], ["verify", url]):
            subprocess.run([dlfs, *command], check=True, capture_output=True, timeout=120)
    # The kernel as initiator, DLFS as target.
    serve = Serve(dlfs, str(image))
    try:
        for options in ("", "--hdr-digest --data-digest"):
            machine.run(f"nvme discover -t tcp -a {GUEST_HOST} -s {serve.port}", 60)
            machine.run(f"nvme connect -t tcp -a {GUEST_HOST} -s {serve.port} -n {serve.nqn} -i 1 {options}", 60)
            device = machine.run("for i in $(seq 200); do for d in /dev/nvme*n1; do [ -b $d ] && echo $d && exit 0; done; sleep 0.1; done; exit 1", 60).split()[-1]
            machine.run(f"dd if=/dev/urandom of={device} bs=1M count=2 oflag=direct 2>/dev/null && dd if={device} of=/dev/null bs=64k count=32 iflag=direct 2>/dev/null", 60)
            machine.run("nvme disconnect-all", 60)
        ports = [4420, serve.port]
    finally:
        serve.stop()
    time.sleep(1)
    machine.stop()  # the capture is whole

    types = collections.Counter(int(one, 0) for line in tshark_fields(tshark, capture, ports, "nvme-tcp", "nvme-tcp.type") for one in line[0].split(",") if one)
    for kind, least in ((IC_REQ, 8), (IC_RESP, 8), (COMMAND, 60), (RESPONSE, 60), (H2C_DATA, 4), (C2H_DATA, 40), (R2T, 4)):
        assert types[kind] >= least, types
    assert set(types) <= {IC_REQ, IC_RESP, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T}, f"no termination requests: {types}"
    malformed = tshark_fields(tshark, capture, ports, "_ws.malformed", "frame.number", "_ws.col.Info")
    assert malformed == []
    wrong = tshark_fields(tshark, capture, ports, "nvme-tcp && _ws.expert.severity >= 0x00800000", "frame.number", "_ws.expert.message")
    assert wrong == []
    bad = 'nvme-tcp.hdgst.status == "Bad" || nvme-tcp.ddgst.status == "Bad"'
    assert tshark_fields(tshark, capture, ports, bad, "frame.number") == []
    # Both kinds of digest were there to be checked, from and to both targets.
    for direction in (f"tcp.{end}port == {port}" for port in ports for end in ("src", "dst")):
        for digest in ("hdgst", "ddgst"):
            good = tshark_fields(tshark, capture, ports, f'{direction} && nvme-tcp.{digest}.status == "Good"', "frame.number")
            assert len(good) >= 2, (direction, digest)

    # This check can fail: data changed in the capture are found.
    damaged = tmp_path / "damaged.pcap"
    damaged.write_bytes(capture.read_bytes().replace(bytes([39]) * 1000, bytes([39]) * 999 + b"!"))
    assert tshark_fields(tshark, damaged, ports, bad, "frame.number") != []
