"""dlfs pack: what it takes, what it refuses, and what it leaves behind."""

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from conftest import pattern, read_tree, write_tree


def ls(cli, volume):
    return cli("ls", "-0", str(volume)).stdout.split(b"\0")[:-1]


def label_of(cli, volume, name):
    return int.from_bytes(cli("cat", str(volume), name, "--field", "label").stdout, "little", signed=True)


def exported(cli, volume, folder, *options):
    cli("export", "--quiet", *options, str(volume), str(folder))
    return read_tree(folder)


def test_round_trip_is_byte_exact(cli, tmp_path):
    sizes = [0, 1, 7, 8, 9, 4095, 4096, 4097, 65_535, 65_536, 65_537, 200_000, 3_000_001]
    files = {f"c{k % 3}/{size}": pattern(k, size) for k, size in enumerate(sizes)}
    write_tree(tmp_path / "in", files)
    cli("pack", "--chunk-size", "64KiB", str(tmp_path / "in"), str(tmp_path / "v"))
    assert exported(cli, tmp_path / "v", tmp_path / "out") == {os.fsencode(n): c for n, c in files.items()}
    cli("verify", str(tmp_path / "v"))
    assert os.listdir(tmp_path) and not [n for n in os.listdir(tmp_path) if "partial" in n]


def test_large_file_is_streamed(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/large": pattern(5, 20_000_003), "a/small": b"x"})
    cli("pack", str(tmp_path / "in"), str(tmp_path / "v"))
    assert cli("cat", str(tmp_path / "v"), "a/large").stdout == pattern(5, 20_000_003)
    cli("pack", "--force", "--skip-errors", str(tmp_path / "in"), str(tmp_path / "v"))
    assert cli("cat", str(tmp_path / "v"), "a/large").stdout == pattern(5, 20_000_003)
    assert exported(cli, tmp_path / "v", tmp_path / "out")[b"a/large"] == pattern(5, 20_000_003)


NAMES = [
    b"plain.jpg", b"with space", b" lead", b"trail ", b"tab\there", b"new\nline", b"--json", b"-l", b"quote'\"`$(x)", b"back\\slash", b"*?[a]",
    "кошка/猫/🐈.jpg".encode(), "ا/अ/ไ/한".encode(), "e\u0301".encode(), "\u00e9".encode(), b"\xff\xfe\x80", b"\x01\x1b[31m", b"..dots", b"a.b.c.tar.gz",
    b"x" * 255,
]


def test_names_of_every_script_and_byte(cli, tmp_path):
    files = {b"k/" + name: name for name in NAMES}
    write_tree(tmp_path / "in", files)
    volume = tmp_path / "v"
    cli("pack", str(tmp_path / "in"), str(volume))
    assert ls(cli, volume) == sorted(files)
    assert exported(cli, volume, tmp_path / "out") == files
    for name, content in files.items():
        assert cli("cat", str(volume), "--", name).stdout == content
    everything = json.loads(cli("ls", "--json", str(volume)).stdout)
    assert [bytes.fromhex(e["name_hex"]) if "name_hex" in e else e["name"].encode() for e in everything] == sorted(files)


def test_names_of_4095_bytes(cli, tmp_path):
    levels = [b"d" * 255] * 15
    name = b"/".join(levels + [b"f" * 255])
    assert len(name) == 4095
    here = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("in", dir_fd=here)
    at = os.open("in", os.O_RDONLY, dir_fd=here)
    for level in levels:
        os.mkdir(level, dir_fd=at)
        at = os.open(level, os.O_RDONLY, dir_fd=at)
    file = os.open(b"f" * 255, os.O_WRONLY | os.O_CREAT, dir_fd=at)
    os.write(file, b"deep")
    volume = tmp_path / "v"
    cli("pack", str(tmp_path / "in"), str(volume))
    assert ls(cli, volume) == [name]
    assert cli("cat", str(volume), name).stdout == b"deep"
    cli("export", str(volume), str(tmp_path / "out"))
    os.mkdir(b"g", dir_fd=at)
    at = os.open(b"g", os.O_RDONLY, dir_fd=at)
    os.close(os.open(b"h" * 255, os.O_WRONLY | os.O_CREAT, dir_fd=at))
    failed = cli("pack", "--force", str(tmp_path / "in"), str(volume), code=1)
    assert b"4,095" in failed.stderr
    assert ls(cli, volume) == [name]


def test_labels_are_the_first_level_in_sorted_order(cli, tmp_path):
    write_tree(tmp_path / "in", {"zebra/1": b"z", "ant/deep/er/2": b"a", "cat/3": b"c", "cat.old/4": b"o"})
    os.mkdir(tmp_path / "in" / "bee")  # a class without files keeps its number
    volume = tmp_path / "v"
    cli("pack", str(tmp_path / "in"), str(volume))
    stat = json.loads(cli("stat", "--json", str(volume)).stdout)
    assert stat["classes"] == ["ant", "bee", "cat", "cat.old", "zebra"]
    assert stat["schema"] == "image: bytes, label: int64"
    for name, label in [("zebra/1", 4), ("ant/deep/er/2", 0), ("cat/3", 2), ("cat.old/4", 3)]:
        assert label_of(cli, volume, name) == label
    cli("pack", "--force", "--no-label", "--field", "text", str(tmp_path / "in"), str(volume))
    stat = json.loads(cli("stat", "--json", str(volume)).stdout)
    assert stat["schema"] == "text: bytes" and stat["classes"] == []


def test_file_outside_a_class_is_refused_with_labels(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"x", "zz": b"x", "readme": b"x"})
    failed = cli("pack", str(tmp_path / "in"), str(tmp_path / "v"), code=2)
    assert b"'readme'" in failed.stderr and b"--no-label" in failed.stderr
    assert os.listdir(tmp_path) == ["in"]
    cli("pack", "--no-label", str(tmp_path / "in"), str(tmp_path / "v"))
    assert ls(cli, tmp_path / "v") == [b"a/1", b"readme", b"zz"]


def test_same_source_gives_the_same_ids_whatever_the_seed(cli, tmp_path):
    write_tree(tmp_path / "in", {f"{i % 3}/{i}": pattern(i, 50) for i in range(200)})
    listings = set()
    for k, options in enumerate([[], ["--seed", "9"], ["--no-shuffle"], ["--skip-errors"]]):
        cli("pack", *options, str(tmp_path / "in"), str(tmp_path / f"v{k}"))
        listings.add(cli("ls", "-l", str(tmp_path / f"v{k}")).stdout)
        cli("verify", str(tmp_path / f"v{k}"))
    assert len(listings) == 1


def test_special_files_are_named_and_left_out(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one"})
    write_tree(tmp_path / "else", {"target": b"linked", "dir/inner": b"x"})
    os.symlink(tmp_path / "else" / "target", tmp_path / "in" / "a" / "link")
    os.symlink(tmp_path / "else" / "dir", tmp_path / "in" / "a" / "dirlink")
    os.symlink(tmp_path / "in", tmp_path / "in" / "a" / "loop")
    os.mkfifo(tmp_path / "in" / "a" / "pipe")
    server = socket.socket(socket.AF_UNIX)
    os.chdir(tmp_path / "in" / "a")
    server.bind("sock")
    os.chdir("/")
    done = cli("pack", str(tmp_path / "in"), str(tmp_path / "v"))
    for name in (b"a/dirlink", b"a/loop", b"a/pipe", b"a/sock"):
        assert b"left out '" + name + b"'" in done.stderr
    assert ls(cli, tmp_path / "v") == [b"a/1", b"a/link"]
    assert cli("cat", str(tmp_path / "v"), "a/link").stdout == b"linked"
    report = json.loads(cli("pack", "--json", "--force", str(tmp_path / "in"), str(tmp_path / "v")).stdout)
    assert report["samples"] == 2 and report["left_out_count"] == 4
    assert sorted(e["name"] for e in report["left_out"]) == ["a/dirlink", "a/loop", "a/pipe", "a/sock"]


def test_broken_link_stops_the_pack_or_is_skipped(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one", "a/3": b"three"})
    os.symlink("nowhere", tmp_path / "in" / "a" / "2")
    failed = cli("pack", str(tmp_path / "in"), str(tmp_path / "v"), code=1)
    assert b"'a/2'" in failed.stderr
    assert os.listdir(tmp_path) == ["in"]
    done = cli("pack", "--skip-errors", str(tmp_path / "in"), str(tmp_path / "v"))
    assert b"left out 'a/2'" in done.stderr
    assert ls(cli, tmp_path / "v") == [b"a/1", b"a/3"]


NOBODY = 65534


@pytest.fixture
def unprivileged(cli):
    """A folder and the options that run the command as somebody who may not read everything."""
    folder = Path(tempfile.mkdtemp(prefix="dlfs-cli-"))
    options = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
    try:
        try:
            subprocess.run([cli.path, "--version"], capture_output=True, check=True, **options)
        except PermissionError:
            pytest.skip("only root can run this build of the command")
        yield folder, options
    finally:
        for path in (folder, folder / "in" / "b"):
            if path.exists():
                path.chmod(0o700)
        shutil.rmtree(folder)


def test_unreadable_files_and_folders(cli, unprivileged):
    folder, options = unprivileged
    source, volume = str(folder / "in"), str(folder / "v")
    write_tree(source, {"a/1": b"one", "a/2": b"two"})
    os.chmod(folder / "in" / "a" / "1", 0)
    assert b"'a/1' in" in cli("pack", source, volume, code=1, **options).stderr
    done = cli("pack", "--skip-errors", source, volume, **options)
    assert b"left out 'a/1'" in done.stderr
    assert ls(cli, volume) == [b"a/2"]
    write_tree(source, {"b/3": b"three"})
    os.chmod(folder / "in" / "b", 0)
    os.chmod(folder / "in" / "a" / "1", 0o644)
    assert b"'b' in" in cli("pack", "--force", source, volume, code=1, **options).stderr
    done = cli("pack", "--force", "--skip-errors", source, volume, **options)
    assert b"left out 'b'" in done.stderr
    assert ls(cli, volume) == [b"a/1", b"a/2"]


def test_destination_folder_that_cannot_be_written(cli, unprivileged):
    folder, options = unprivileged
    write_tree(folder / "in", {"a/1": b"one"})
    (folder / "ro").mkdir(mode=0o555)
    failed = cli("pack", str(folder / "in"), str(folder / "ro" / "v"), code=1, **options)
    assert failed.stderr.startswith(b"dlfs: ") and b"ro/v" in failed.stderr
    assert os.listdir(folder / "ro") == []


def changing_source(tmp_path):
    """A source of many files whose sizes change all the time, so that some change between listing and reading."""
    files = {f"a/{i:05}": b"x" * 100 for i in range(6000)}
    write_tree(tmp_path / "in", files)
    script = "import os,sys,time\nos.chdir(sys.argv[1])\nn=0\nwhile True:\n  for i in range(0, 6000, 7):\n    n+=1\n    open(f'{i:05}','ab').write(b'y')\n    if n==1: print(flush=True)\n"
    writer = subprocess.Popen(["python3", "-c", script, str(tmp_path / "in" / "a")], stdout=subprocess.PIPE)
    writer.stdout.readline()  # it has begun
    return writer


def test_file_that_changes_during_the_pack(cli, tmp_path):
    writer = changing_source(tmp_path)
    try:
        failed = cli("pack", "--quiet", str(tmp_path / "in"), str(tmp_path / "v"), code=1)
        assert b"changed while it was being packed" in failed.stderr and b"'a/0" in failed.stderr
        assert os.listdir(tmp_path) == ["in"]
        report = json.loads(cli("pack", "--json", "--skip-errors", str(tmp_path / "in"), str(tmp_path / "v")).stdout)
    finally:
        writer.kill()
        writer.wait()
    assert report["left_out_count"] > 0
    assert report["samples"] + report["left_out_count"] == 6000
    assert all(e["failed"] for e in report["left_out"])
    cli("verify", str(tmp_path / "v"))
    assert len(ls(cli, tmp_path / "v")) == report["samples"]


def test_nothing_is_overwritten_without_force(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one"})
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"somebody's thesis\n" * 10_000)
    failed = cli("pack", str(tmp_path / "in"), str(foreign), code=1)
    assert b"--force" in failed.stderr
    assert foreign.read_bytes() == b"somebody's thesis\n" * 10_000
    cli("pack", "--force", str(tmp_path / "in"), str(foreign))
    before = foreign.read_bytes()
    cli("pack", str(tmp_path / "in"), str(foreign), code=1)
    assert foreign.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["foreign", "in"]


def test_volume_inside_its_source_is_not_packed_into_itself(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one"})
    volume = tmp_path / "in" / "a" / "v.dlfs"
    for options in ([], ["--force"]):
        cli("pack", *options, str(tmp_path / "in"), str(volume))
        assert ls(cli, volume) == [b"a/1"]


def test_bad_sources_and_destinations_say_what_is_wrong(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    volume = str(tmp_path / "v")
    assert b"No such file" in cli("pack", str(tmp_path / "absent"), volume, code=1).stderr
    assert b"not a folder" in cli("pack", str(tmp_path / "file"), volume, code=2).stderr
    assert b"no file" in cli("pack", str(tmp_path / "empty"), volume, code=2).stderr
    cli("pack", str(tmp_path / "in"), str(tmp_path / "absent" / "v"), code=1)
    assert cli("pack", str(tmp_path / "in"), str(tmp_path / "empty"), code=None).returncode in (1, 2)
    for chunk in ("63KiB", "100000", "32MiB", "0"):
        cli("pack", "--chunk-size", chunk, str(tmp_path / "in"), volume, code=2)
    cli("pack", "--chunk-size", "many", str(tmp_path / "in"), volume, code=2)
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "in"]


def test_destination_where_no_file_can_be_made(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one"})
    failed = cli("pack", str(tmp_path / "in"), "/proc/dlfs-test-volume", code=1)
    assert failed.stderr.startswith(b"dlfs: ") and b"/proc/dlfs-test-volume" in failed.stderr


def test_file_size_limit_leaves_the_destination_as_it_was(cli, tmp_path):
    write_tree(tmp_path / "in", {f"a/{i}": pattern(i, 100_000) for i in range(100)})
    write_tree(tmp_path / "small", {"a/1": b"one"})
    volume = tmp_path / "v"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))

    failed = cli("pack", "--quiet", str(tmp_path / "in"), str(volume), code=1, preexec_fn=limit)
    assert failed.stderr.startswith(b"dlfs: ")
    assert sorted(os.listdir(tmp_path)) == ["in", "small"]
    cli("pack", str(tmp_path / "small"), str(volume))
    before = volume.read_bytes()
    cli("pack", "--quiet", "--force", str(tmp_path / "in"), str(volume), code=1, preexec_fn=limit)
    assert volume.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["in", "small", "v"]


def test_disk_full(cli, tmp_path):
    mount = tmp_path / "tiny"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        write_tree(tmp_path / "in", {f"a/{i}": pattern(i, 100_000) for i in range(60)})
        failed = cli("pack", "--quiet", str(tmp_path / "in"), str(mount / "v"), code=1)
        assert b"space" in failed.stderr.lower()
        assert os.listdir(mount) == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_leaves_nothing_behind(cli, tmp_path, sent, code):
    write_tree(tmp_path / "in", {f"a/{i:05}": pattern(i, 50_000) for i in range(3000)})
    volume = tmp_path / "v"
    hit = False
    for delay_s in (0.02, 0.05, 0.1, 0.2, 0.4):
        process = cli.start("pack", str(tmp_path / "in"), str(volume))
        time.sleep(delay_s)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
        if process.returncode == code:
            hit = True
            assert b"interrupted" in errors
            assert os.listdir(tmp_path) == ["in"]
        elif process.returncode == 0:  # too late: the volume is whole
            cli("verify", str(volume))
            volume.unlink()
        else:
            assert process.returncode == -sent and not volume.exists()  # before the handler stood
    assert hit


def test_interrupt_keeps_the_earlier_volume(cli, tmp_path):
    write_tree(tmp_path / "small", {"a/1": b"one"})
    write_tree(tmp_path / "in", {f"a/{i:05}": pattern(i, 50_000) for i in range(3000)})
    volume = tmp_path / "v"
    cli("pack", str(tmp_path / "small"), str(volume))
    before = volume.read_bytes()
    process = cli.start("pack", "--force", str(tmp_path / "in"), str(volume))
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    if process.returncode != 0:
        assert volume.read_bytes() == before
        assert sorted(os.listdir(tmp_path)) == ["in", "small", "v"]


def test_progress_is_plain_lines_without_a_terminal(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one"})
    done = cli("pack", str(tmp_path / "in"), str(tmp_path / "v"))
    assert b"\r" not in done.stderr and b"\x1b" not in done.stderr
    assert done.stdout.startswith(b"packed 1 sample, 3 B")
    quiet = cli("pack", "--force", "--quiet", str(tmp_path / "in"), str(tmp_path / "v"))
    assert quiet.stdout == b"" and quiet.stderr == b""


def test_pack_json(cli, tmp_path):
    write_tree(tmp_path / "in", {"a/1": b"one", "b/2": b"four"})
    report = json.loads(cli("pack", "--json", str(tmp_path / "in"), str(tmp_path / "v")).stdout)
    assert report["samples"] == 2 and report["left_out_count"] == 0 and report["left_out"] == []
    assert report["device_bytes"] == (tmp_path / "v").stat().st_size
    failed = cli("pack", "--json", str(tmp_path / "in"), str(tmp_path / "v"), code=1)
    error = json.loads(failed.stderr)["error"]
    assert error["code"] == 3 and error["kind"] == "exists" and "--force" in error["message"]
    assert failed.stdout == b""


def test_nothing_holds_the_volume_once_the_command_has_ended(cli, tmp_path):
    write_tree(tmp_path / "in", {"c/1": b"x" * 100_000})
    for _ in range(5):  # a lease is refused while any descriptor, the kernel's included, is open for writing
        cli("pack", "--quiet", "--force", str(tmp_path / "in"), str(tmp_path / "v"))
        with open(tmp_path / "v", "rb") as volume:
            try:
                fcntl.fcntl(volume, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    pytest.skip(f"no leases on this file system: {error}")
                pytest.fail("the volume is still open for writing")


def test_a_device_that_is_too_small_keeps_what_it_holds(cli, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(bytes(2 << 20))
    if shutil.which("losetup") is None:
        pytest.skip("no losetup command")
    made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("no loop device may be made here")
    device = made.stdout.decode().strip()
    try:
        if subprocess.run(["blockdev", "--setrw", device], capture_output=True).returncode != 0:
            pytest.skip("the loop device stays read-only")
        write_tree(tmp_path / "small", {"c/1": b"x"})
        write_tree(tmp_path / "large", {"c/1": bytes(3 << 20)})
        cli("pack", str(tmp_path / "small"), device)
        failed = cli("pack", "--force", str(tmp_path / "large"), device, code=1)
        assert b"too small" in failed.stderr and b"nothing was written" in failed.stderr
        cli("verify", device)
    finally:
        subprocess.run(["losetup", "--detach", device])
