"""dlfs serve, discover, identify and bench device, as a user meets them."""

import json
import re
import signal
import socket
import subprocess

import pytest


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "space.img"
    with open(path, "wb") as file:
        file.truncate(64 << 20)
    return path


class Server:
    def __init__(self, cli, *arguments):
        self.process = cli.start("serve", "--listen", "127.0.0.1:0", *arguments)
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.decode().strip())
            if self.lines[-1] == "ready":
                break
        self.urls = self.lines[:-1]

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(30)
        self.process.stdout.close()
        self.errors = self.process.stderr.read().decode()
        self.process.stderr.close()
        return code


@pytest.fixture
def serve(cli):
    running = []

    def start(*arguments):
        running.append(Server(cli, *map(str, arguments)))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def test_urls_then_ready_and_a_clean_end(serve, image):
    server = serve(image, "mem:16MiB", "null:1GiB")
    assert server.lines[-1] == "ready" and len(server.urls) == 3
    for number, url in enumerate(server.urls, 1):
        assert re.fullmatch(rf"nvme-tcp://127\.0\.0\.1:\d+/nqn\.[^?]+\?nsid={number}", url)
    assert server.stop(signal.SIGTERM) == 0
    assert serve(image).stop(signal.SIGINT) == 0


def test_the_name_stays_the_same_after_a_restart(serve, image):
    first = serve(image)
    first.stop()
    assert serve(image).urls[0].split("/")[3] == first.urls[0].split("/")[3]


def test_discover_identify_pack_and_read(cli, serve, image, tmp_path):
    (tmp_path / "source" / "a").mkdir(parents=True)
    for number in range(100):
        (tmp_path / "source" / "a" / f"{number}.bin").write_bytes(bytes([number]) * number)
    server = serve(image)
    url = server.urls[0]
    port = re.search(r":(\d+)/", url).group(1)
    found = json.loads(cli("discover", f"127.0.0.1:{port}", "--json").stdout)
    assert found["entries"][0]["url"] == url
    assert url.encode() in cli("discover", f"127.0.0.1:{port}").stdout
    identity = json.loads(cli("identify", url, "--json").stdout)
    assert identity["model"] == "DLFS target" and identity["namespace"]["capacity_bytes"] == 64 << 20
    assert b"DLFS target" in cli("identify", url).stdout
    cli("pack", str(tmp_path / "source"), url)
    assert cli("cat", url, "a/77.bin").stdout == bytes([77]) * 77
    cli("verify", url)
    cli("export", url, str(tmp_path / "out"))
    assert (tmp_path / "out" / "a" / "99.bin").read_bytes() == bytes([99]) * 99
    again = cli("pack", str(tmp_path / "source"), url, code=1)
    assert b"--force" in again.stderr


def test_a_host_that_is_not_listed_is_refused(cli, serve, image):
    server = serve("--host", "nqn.allowed", image)
    refused = cli("stat", server.urls[0], code=1)
    assert b"is not allowed to connect" in refused.stderr and b"its NQN is" in refused.stderr
    cli("identify", server.urls[0] + "&hostnqn=nqn.allowed")
    server.stop()
    assert "refused host" in server.errors


def test_read_only(cli, serve, image, tmp_path):
    (tmp_path / "source" / "a").mkdir(parents=True)
    (tmp_path / "source" / "a" / "x").write_bytes(b"x")
    server = serve("--read-only", image)
    refused = cli("pack", str(tmp_path / "source"), server.urls[0], code=1)
    assert b"read" in refused.stderr.lower()


def test_what_cannot_be_served_is_said(cli, image, tmp_path):
    assert b"truncate -s" in cli("serve", str(tmp_path / "absent"), code=1).stderr
    (tmp_path / "tiny").write_bytes(b"x")
    assert b"less than one block" in cli("serve", str(tmp_path / "tiny"), code=2).stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = cli("serve", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", str(image), code=1)
        assert b"another program listens" in refused.stderr and b"port 0" in refused.stderr
    assert b"HOST:PORT" in cli("serve", "--listen", "no good", str(image), code=2).stderr
    assert b"required" in cli("serve", code=2).stderr


def test_one_file_is_served_for_writing_once(cli, serve, image):
    serve(image)
    refused = cli("serve", "--listen", "127.0.0.1:0", str(image), code=1)
    assert b"--read-only" in refused.stderr
    assert serve("--read-only", image).urls


def test_listening_for_everybody_is_warned_about(serve, image):
    server = serve("--listen", "0.0.0.0:0", image)
    server.stop()
    assert "warning: everybody who reaches 0.0.0.0" in server.errors and "overwrite" in server.errors
    server = serve("--listen", "0.0.0.0:0", "--host", "nqn.allowed", image)
    server.stop()
    assert "warning" not in server.errors


def test_json_and_statistics(cli, image):
    process = cli.start("serve", "--listen", "127.0.0.1:0", "--json", "-v", str(image))
    try:
        report = json.loads(process.stdout.readline())
        assert report["ready"] and report["urls"][0].endswith("nsid=1") and report["addresses"][0].startswith("127.0.0.1:")
        cli("identify", report["urls"][0])
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0 and b"controllers" in errors
    finally:
        process.kill()


def test_nothing_there_to_discover(cli):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = cli("discover", f"127.0.0.1:{free.getsockname()[1]}", code=1)
    assert b"refused" in refused.stderr
    assert b"no '/NQN'" in cli("identify", "nvme-tcp://127.0.0.1", code=2).stderr


@pytest.mark.parametrize("device", ["mem:bench?size=16MiB", "null:1GiB", "file"])
def test_bench_device(cli, image, device):
    url = str(image) if device == "file" else device
    report = json.loads(cli("bench", "device", url, "--seconds", "0.3", "--warmup", "0", "--depth", "8", "--json").stdout)
    assert report["iops"] > 0 and report["errors"] == 0 and report["bytes_per_s"] == pytest.approx(report["iops"] * 4096)
    for key in ("p50_us", "p99_us", "cpu_s_per_gb", "cpu_s_per_million_ios"):
        assert report[key] > 0
    assert report["p50_us"] <= report["p99_us"] <= report["max_us"] * 1.05


def test_bench_device_over_the_network_at_a_rate(cli, serve):
    server = serve("null:1GiB")
    report = json.loads(cli("bench", "device", server.urls[0], "--seconds", "0.5", "--rate", "2000", "--burst", "10", "--queues", "2", "--json").stdout)
    assert report["ios"] == pytest.approx(1000, rel=0.3) and report["queues"] == 2


def test_bench_device_does_not_destroy_by_accident(cli, image, tmp_path):
    image.write_bytes(b"data" + bytes(1 << 20))
    refused = cli("bench", "device", str(image), "--op", "write", "--seconds", "0.2", code=1)
    assert b"--force" in refused.stderr and image.read_bytes().startswith(b"data")
    cli("bench", "device", str(image), "--op", "write", "--seconds", "0.2", "--force")
    assert b"multiple" in cli("bench", "device", str(image), "--size", "100", code=2).stderr
    assert b"--queues is for nvme-tcp" in cli("bench", "device", str(image), "--queues", "2", code=2).stderr
