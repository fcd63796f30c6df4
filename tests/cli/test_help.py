"""Help, manual page, completion, version, and the errors of the command line."""

import json
import re
import shutil
import subprocess

import pytest

COMMANDS = ("pack", "stat", "ls", "cat", "export", "verify", "order", "bench", "completion")


def test_every_command_has_help_with_an_example(cli):
    top = cli("--help").stdout.decode()
    for command in COMMANDS:
        assert re.search(rf"^\s+{command}\s", top, re.M)
        text = cli(command, "--help").stdout.decode()
        assert "POSITIVE" not in text and "Example:\n  " in text and f"dlfs {command}" in text and "--json" in text
    assert cli("--help").stderr == b""


def test_version(cli):
    assert re.fullmatch(rb"dlfs \d+\.\d+\.\d+\n", cli("--version").stdout)


def test_no_command_shows_the_help(cli):
    done = cli(code=2)
    assert done.stdout == b"" and b"pack" in done.stderr


def test_a_misspelt_command_is_suggested(cli):
    failed = cli("pakc", "a", "b", code=2)
    assert b"'pakc'" in failed.stderr and b"did you mean 'pack'" in failed.stderr
    assert b"did you mean" not in cli("frobnicate", code=2).stderr
    error = json.loads(cli("verfiy", "--json", code=2).stderr)["error"]
    assert error["code"] == 1 and "verify" in error["message"]


def test_usage_errors_are_sentences_with_exit_code_2(cli):
    for arguments in (["pack"], ["pack", "a"], ["pack", "a", "b", "c"], ["ls", "--nonsense", "v"], ["stat"], ["order", "v", "--seed", "x"],
                      ["bench", "v", "--cache", "lots"], ["bench", "v", "--epochs", "0"], ["completion", "tcsh"], ["--nonsense"]):
        failed = cli(*arguments, code=2)
        assert failed.stdout == b"" and failed.stderr.startswith(b"dlfs: ") and failed.stderr.count(b"\n") == 1, (arguments, failed.stderr)
        if not arguments[0].startswith("-"):
            error = json.loads(cli(*arguments, "--json", code=2).stderr)["error"]
            assert error["kind"] == "invalid argument"


@pytest.fixture(scope="module")
def manual(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("man") / "dlfs.1"
    path.write_bytes(cli("help", "--man").stdout)
    return path


def test_manual_page_has_every_command_and_option(cli, manual):
    text = manual.read_text()
    for command in COMMANDS:
        assert f".SS dlfs {command}\n" in text
        for option in re.findall(r"--[a-z-]+", cli(command, "--help").stdout.decode()):
            assert option.replace("-", "\\-") in text, (command, option)


def test_manual_page_renders_without_complaint(manual):
    if shutil.which("man") is None:
        pytest.skip("no man command")
    done = subprocess.run(["man", "--warnings", "-l", "-Tutf8", str(manual)], capture_output=True, timeout=60, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100"})
    if done.returncode != 0 and b"groff" in done.stderr:
        pytest.skip("man has no groff here")
    assert done.returncode == 0 and done.stderr == b""
    text = re.sub(rb".\x08", b"", done.stdout)
    text = re.sub(rb"\x1b\[[0-9;]*m", b"", text)
    for words in (b"EXIT STATUS", b"dlfs pack photos/train train.dlfs", b"--chunk-size"):
        assert words in text


def test_manual_page_passes_mandoc(manual):
    if shutil.which("mandoc") is None:
        pytest.skip("no mandoc command")
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(manual)], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout


def complete(cli, *words):
    """What bash offers for the last of `words`."""
    script = cli("completion", "bash").stdout.decode() + f"""
COMP_WORDS=(dlfs {' '.join(f"'{word}'" for word in words)}); COMP_CWORD={len(words)}
_dlfs; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-euc", script], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split()


def test_bash_completion(cli, tmp_path):
    assert set(COMMANDS) <= set(complete(cli, ""))
    assert complete(cli, "ve") == ["verify"]
    assert "--chunk-size" in complete(cli, "pack", "--")
    assert complete(cli, "order", "--mode", "f") == ["full"]
    assert complete(cli, "order", "--tail", "") == ["drop", "pad", "short"]
    assert complete(cli, "completion", "") == ["bash", "zsh", "fish"]
    (tmp_path / "train.dlfs").write_bytes(b"")
    assert complete(cli, "stat", str(tmp_path / "tr")) == [str(tmp_path / "train.dlfs")]


@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_completion_scripts_parse(cli, tmp_path, shell, check):
    script = cli("completion", shell).stdout
    for command in COMMANDS:
        assert command.encode() in script
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_bytes(script)
    assert subprocess.run([*check, str(path)], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("arguments", [
    ["order", "v", "--seed", "-1"], ["order", "v", "--seed=-1"], ["order", "v", "--seed", "18446744073709551616"], ["order", "v", "--epoch", "1.5"],
    ["order", "v", "--batch", "4294967296"], ["order", "v", "--start", "-1"], ["order", "v", "--limit", "0x10"], ["order", "v", "--window", "99999999999"],
    ["pack", "s", "v", "--seed", "-1"], ["cat", "v", "--id", "-1"], ["cat", "v", "--id", "4294967296"], ["bench", "v", "--epochs", "0"], ["bench", "v", "--depth", "0"]])
def test_numbers_are_taken_as_written_or_refused_with_their_range(cli, arguments):
    failed = cli(*arguments, code=2).stderr.decode()
    option, value = arguments[-2:] if "=" not in arguments[-1] else arguments[-1].split("=")
    assert f"{option}: '{value}' is not a whole number from " in failed, failed


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "1e99", "soon"])
def test_a_time_that_is_none_is_refused(cli, value):
    assert f"'{value}' is not a number above 0 and at most 1000000".encode() in cli("bench", "v", "--seconds", value, code=2).stderr


def test_what_a_command_does_not_take_is_named(cli):
    assert b"dlfs stat takes no 'b', 'c'" in cli("stat", "a", "b", "c", code=2).stderr
    assert b"dlfs stat takes no '--nope'" in cli("stat", "a", "--nope", code=2).stderr
    assert b"'--json' cannot stand before the command" in cli("--json", "stat", "a", code=2).stderr


def test_help_that_cannot_be_written_is_an_error(cli):
    for arguments in (["--help"], ["--version"], ["pack", "--help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([cli.path, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert done.returncode == 1 and b"standard output" in done.stderr
