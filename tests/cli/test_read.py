"""dlfs stat, ls, cat, export and verify."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import pattern, read_tree, write_tree


def test_stat_accounts_for_every_byte_of_the_samples(cli, packed):
    source, volume, files = packed
    stat = json.loads(cli("stat", "--json", str(volume)).stdout)
    assert stat["samples"] == len(files)
    assert stat["classes"] == ["ant", "bee", "cat", "dog"]
    assert stat["device_bytes"] == volume.stat().st_size
    assert stat["payload_bytes"] == sum(map(len, files.values())) + 8 * len(files)  # a label is 8 bytes
    assert stat["chunk_bytes"] == 65536
    assert stat["directory_bytes_per_sample"] > 0
    text = cli("stat", str(volume)).stdout.decode()
    for word in ("payload", "record", "padding", "index", "names", "overhead", "generation", "ant, bee, cat, dog", "1,200"):
        assert word in text


def test_ls_selects_by_prefix_and_by_pattern(cli, packed):
    _, volume, files = packed
    names = sorted(files)
    assert cli("ls", str(volume)).stdout == b"".join(n + b"\n" for n in names)
    assert cli("ls", "-0", str(volume)).stdout == b"".join(n + b"\0" for n in names)
    assert cli("ls", str(volume), "bee/").stdout.split() == [n for n in names if n.startswith(b"bee/")]
    assert cli("ls", str(volume), "*/001?.bin").stdout.split() == [n for n in names if n[4:7] == b"001"]
    assert cli("ls", str(volume), "none").stdout == b""
    lines = [line.split() for line in cli("ls", "-l", str(volume)).stdout.splitlines()]
    assert lines == [[str(i).encode(), str(len(files[n])).encode(), n] for i, n in enumerate(names)]
    listed = json.loads(cli("ls", "--json", str(volume), "ant/00").stdout)
    assert [(e["id"], e["size"], e["name"].encode()) for e in listed] == [(i, len(files[n]), n) for i, n in enumerate(names[:100])]


def test_sizes_of_large_and_empty_samples(cli, tmp_path):
    sizes = [0, 1, 65_000, 65_500, 65_535, 65_536, 70_000, 1_000_000]
    write_tree(tmp_path / "in", {f"c/{size:07}": pattern(size, size) for size in sizes})
    for options in ([], ["--no-label"]):
        cli("pack", "--force", *options, "--chunk-size", "64KiB", str(tmp_path / "in"), str(tmp_path / "v"))
        assert [e["size"] for e in json.loads(cli("ls", "--json", str(tmp_path / "v")).stdout)] == sizes


def test_ls_escapes_on_a_terminal_only(cli, tmp_path):
    write_tree(tmp_path / "in", {b"k/a\nb\x1b[31m": b"x"})
    cli("pack", str(tmp_path / "in"), str(tmp_path / "v"))
    assert cli("ls", str(tmp_path / "v")).stdout == b"k/a\nb\x1b[31m\n"
    shown = subprocess.run(["script", "-qec", f"{cli.path} ls {tmp_path / 'v'}", "/dev/null"], capture_output=True, stdin=subprocess.DEVNULL) if shutil.which("script") else None
    if shown is None:
        pytest.skip("no script command to make a terminal with")
    assert rb"k/a\x0ab\x1b[31m" in shown.stdout


def test_cat_by_name_id_and_field(cli, packed):
    _, volume, files = packed
    names = sorted(files)
    for i in (0, 1, 599, 1199):
        assert cli("cat", str(volume), names[i]).stdout == files[names[i]]
        assert cli("cat", str(volume), "--id", str(i)).stdout == files[names[i]]
        assert cli("cat", str(volume), "--id", str(i), "--field", "label").stdout == (i // 300).to_bytes(8, "little")
    described = json.loads(cli("cat", "--json", str(volume), "--id", "7").stdout)
    assert described == {"id": 7, "size": len(files[names[7]]), "name": names[7].decode()}


def test_cat_says_what_is_not_there(cli, packed):
    _, volume, _ = packed
    assert b"cat/9999.bin" in cli("cat", str(volume), "cat/9999.bin", code=1).stderr
    assert b"1200" in cli("cat", str(volume), "--id", "1200", code=1).stderr
    assert b"image, label" in cli("cat", str(volume), "--id", "0", "--field", "caption", code=1).stderr
    cli("cat", str(volume), code=2)
    cli("cat", str(volume), "ant/0001.bin", "--id", "1", code=2)
    cli("cat", str(volume), "--id", "-1", code=2)
    cli("cat", str(volume), "--id", "4294967296", code=2)


def test_a_reader_that_goes_away_is_no_error(cli, packed):
    _, volume, _ = packed
    for command in (f"ls {volume}", f"ls --json {volume}", f"order {volume} --batch 1", f"cat {volume} ant/0299.bin", f"stat {volume}", "help --man"):
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {cli.path} {command} | head -c 1 >/dev/null"], capture_output=True, timeout=60)
        assert done.returncode == 0 and done.stderr == b"", (command, done)


def test_a_full_standard_output_is_an_error(cli, packed):
    _, volume, _ = packed
    with open("/dev/full", "wb") as full:
        done = subprocess.run([cli.path, "ls", str(volume)], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"standard output" in done.stderr


def test_export_is_byte_exact_and_careful(cli, packed, tmp_path):
    _, volume, files = packed
    out = tmp_path / "out"
    report = json.loads(cli("export", "--json", str(volume), str(out)).stdout)
    assert report["samples"] == len(files) and report["bytes"] == sum(map(len, files.values()))
    assert read_tree(out) == files
    again = cli("export", str(volume), str(out), code=1)
    assert b"--force" in again.stderr
    (out / "ant" / "0000.bin").write_bytes(b"changed")
    cli("export", "--quiet", "--force", str(volume), str(out))
    assert read_tree(out) == files
    labels = tmp_path / "labels"
    cli("export", "--quiet", "--field", "label", str(volume), str(labels))
    assert (labels / "dog" / "0000.bin").read_bytes() == (3).to_bytes(8, "little")


def test_export_does_not_follow_links_out_of_its_folder(cli, packed, tmp_path):
    _, volume, _ = packed
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path / "outside", tmp_path / "out" / "ant")
    failed = cli("export", "--force", str(volume), str(tmp_path / "out"), code=1)
    assert b"'ant'" in failed.stderr
    assert os.listdir(tmp_path / "outside") == []


def test_verify_finds_a_flipped_byte(cli, packed, tmp_path):
    _, volume, files = packed
    good = json.loads(cli("verify", "--json", str(volume)).stdout)
    assert good["ok"] and good["findings"] == [] and good["samples"] == len(files)
    assert b"as it was written" in cli("verify", str(volume)).stdout
    content = volume.read_bytes()
    victim = files[b"bee/0123.bin"]
    at = content.index(victim[:64])
    bad = tmp_path / "bad.dlfs"
    bad.write_bytes(content[: at + 5] + bytes([content[at + 5] ^ 0x10]) + content[at + 6 :])
    report = json.loads(cli("verify", "--json", str(bad), code=1).stdout)
    assert not report["ok"] and report["bad_samples"] == 1 and report["findings_count"] == len(report["findings"]) == 1
    finding = report["findings"][0]
    assert finding["name"] == "bee/0123.bin" and finding["id"] == sorted(files).index(b"bee/0123.bin")
    assert 0 <= at - finding["device_offset"] <= 64
    text = cli("verify", str(bad), code=1).stdout
    assert b"bee/0123.bin" in text and str(finding["id"]).encode() in text
    failed = cli("cat", str(bad), "bee/0123.bin", code=1)
    assert failed.stdout == b"" and b"bee/0123.bin" in failed.stderr
    failed = cli("export", "--quiet", str(bad), str(tmp_path / "out"), code=1)
    assert b"bee/0123.bin" in failed.stderr


def test_every_command_says_what_is_wrong_with_a_volume(cli, packed, tmp_path):
    _, volume, _ = packed
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"not a volume " * 50_000)
    cut = tmp_path / "cut"
    cut.write_bytes(volume.read_bytes()[: volume.stat().st_size // 2])
    commands = (["stat"], ["ls"], ["cat", "--id", "0"], ["verify"], ["order"], ["bench"])
    for bad, kinds in ((foreign, ("foreign",)), (cut, ("truncated",)), (tmp_path / "absent", ("not found",))):
        for command, *rest in commands:
            failed = cli(command, str(bad), *rest, code=1)
            assert failed.stdout in (b"", b"["), (command, failed.stdout)
            assert failed.stderr.startswith(b"dlfs: ") and str(bad).encode() in failed.stderr
            error = json.loads(cli(command, "--json", str(bad), *rest, code=1).stderr)["error"]
            assert error["kind"] in kinds, (command, error)


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_killed_pack_is_called_incomplete(cli, tmp_path):
    write_tree(tmp_path / "in", {f"a/{i:05}": pattern(i, 20_000) for i in range(4000)})
    volume = tmp_path / "v"
    process = cli.start("pack", str(tmp_path / "in"), str(volume))
    partial = tmp_path / "v.partial"
    while process.poll() is None and size_of(partial) < 1_000_000:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if volume.exists():
        pytest.skip("the pack was done before it could be killed")
    for path in (volume, partial):
        assert b"incomplete" in cli("stat", str(path), code=1).stderr
    cli("pack", "--quiet", str(tmp_path / "in"), str(volume))
    cli("verify", str(volume))
    assert sorted(os.listdir(tmp_path)) == ["in", "v"]


def test_export_leaves_out_damaged_samples_when_asked(cli, tmp_path):
    files = {b"k/%03d" % i: pattern(i, 3000) for i in range(100)} | {b"k/large": os.urandom(5 << 20), b"k/also": os.urandom(5 << 20)}
    write_tree(tmp_path / "in", files)
    cli("pack", "--quiet", str(tmp_path / "in"), str(tmp_path / "v"))
    victims = {b"k/017", b"k/large"}
    content = bytearray((tmp_path / "v").read_bytes())
    content[content.index(files[b"k/017"][:64]) + 5] ^= 0x10
    content[content.index(files[b"k/large"][-64:]) + 5] ^= 0x10  # far behind its beginning
    (tmp_path / "v").write_bytes(content)
    good = {name: bytes_ for name, bytes_ in files.items() if name not in victims}
    report = json.loads(cli("export", "--json", "--skip-errors", str(tmp_path / "v"), str(tmp_path / "out")).stdout)
    assert report["samples"] == len(good) and report["left_out_count"] == 2
    assert {item["name"].encode() for item in report["left_out"]} == victims and all(item["why"] for item in report["left_out"])
    assert read_tree(tmp_path / "out") == good
    done = cli("export", "--skip-errors", str(tmp_path / "v"), str(tmp_path / "out2"))
    assert b"'k/017'" in done.stderr and b"'k/large'" in done.stderr and b"left out 2 damaged samples" in done.stdout
    assert b"--skip-errors" in cli("export", str(tmp_path / "v"), str(tmp_path / "out3"), code=1).stderr


def test_verify_finds_what_was_appended_to_a_file(cli, packed, tmp_path):
    _, volume, _ = packed
    longer = tmp_path / "longer.dlfs"
    longer.write_bytes(volume.read_bytes() + b"x")
    report = json.loads(cli("verify", "--json", str(longer), code=1).stdout)
    assert report["findings_count"] == 1 and report["findings"][0]["device_offset"] == volume.stat().st_size
    assert "1 byte longer" in report["findings"][0]["message"]


def test_classes_that_are_no_text_are_there_as_bytes_too(cli, packed, tmp_path):
    assert "classes_hex" not in json.loads(cli("stat", "--json", str(packed[1])).stdout)
    names = [b"a\nb", b"ok", b"\xff"]
    write_tree(tmp_path / "in", {name + b"/1": b"x" for name in names})
    cli("pack", str(tmp_path / "in"), str(tmp_path / "v"))
    stat = json.loads(cli("stat", "--json", str(tmp_path / "v")).stdout)
    assert [bytes.fromhex(digits) for digits in stat["classes_hex"]] == names
    assert stat["classes"] == ["a\\x0ab", "ok", "\\xff"]
