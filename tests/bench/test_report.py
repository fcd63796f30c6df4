"""The comparison of bench/compare.py: a small real run, its report in a browser, and peers that deliver wrong bytes."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("dlfs", reason="the Python package is not built: ./dev build")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: ./dev test installs it")

ROOT = Path(__file__).resolve().parents[2]
DLFS = Path(os.environ.get("DLFS_BIN", ROOT / "build/release/bin/dlfs"))
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_S = 240
SAMPLES = 300

pytestmark = pytest.mark.skipif(not DLFS.exists(), reason=f"the command is not built: {DLFS}")


def compare(folder, *options):
    """Runs the comparison with its data sets and results in a folder."""
    command = [
        sys.executable, str(ROOT / "bench/compare.py"), "--quick", "--keep-cache", "--most-samples", str(SAMPLES), "--opening-samples", str(SAMPLES),
        "--work", str(folder / "work"), "--out", str(folder / "out"), "--dlfs", str(DLFS), *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder with compare.json and report.html, results)"""
    folder = tmp_path_factory.mktemp("compare")
    done = compare(folder, "--sets", "512B,4KiB", "--peers", "dlfs-chunk,dlfs-full,files", "--parts", "peers,ranks,open")
    assert done.returncode == 0, done.stderr
    assert not list((folder / "work").iterdir()), "the data sets are removed"
    return folder / "out", json.loads((folder / "out" / "compare.json").read_text())


def test_every_peer_is_measured_cold_and_warm_and_delivers_the_same_bytes(run):
    _, results = run
    measured = {(each["set"], each["peer"], each["state"]) for each in results["runs"]}
    assert measured == {(s, p, t) for s in ("512B", "4KiB") for p in ("dlfs-chunk", "dlfs-full", "files") for t in ("cold", "warm")}
    assert len(results["checks"]) == 6
    for check in results["checks"]:
        assert check["ok"] and check["samples"] == check["distinct"] == SAMPLES
        assert check["bytes"] == SAMPLES * (512 if check["set"] == "512B" else 4096)
    for each in results["runs"]:
        assert each["samples"] == SAMPLES and each["whole_epoch"] and each["samples_per_s"] > 0 and each["peak_memory_bytes"] > 0
    assert {each["ranks"] for each in results["ranks"]} == {1, 2}
    assert all(each["samples_per_s"] > 0 for each in results["ranks"])
    assert {each["peer"] for each in results["opening"]} == {"dlfs-chunk", "dlfs-full", "files"}


def test_the_report_says_what_was_measured_and_loads_nothing_from_elsewhere(run):
    out, results = run
    page = (out / "report.html").read_text()
    for peer in results["peers"]:
        assert html.escape(peer["shuffle"]) in page
    for target in results["targets"]:
        assert html.escape(target["what"]) in page
    assert not re.search(r"""(src|href)=["'][^#]|@import|<script|<link""", page), "nothing of another file"
    assert page.count('<svg class="plot"') >= 9  # four by size, two a data set, one of the ranks


def test_the_report_is_written_anew_from_the_figures(run, tmp_path):
    out, _ = run
    shutil.copy(out / "compare.json", tmp_path)
    guest = {
        "rows": [
            {"reader": reader, "sample_bytes": 512, "queues": 1, "samples_per_s": [rate, rate * 1.1], "cpu_s_per_million": [1e6 / rate] * 2}
            for reader, rate in (("ext4 files", 1e4), ("ext4 packed", 2e4), ("dlfs chunk", 5e5), ("dlfs full", 2e4))
        ],
        "environment": {"kernel": "6.1"},
        "distortions": "Emulated <disks> are slow.",
    }
    (tmp_path / "guest.json").write_text(json.dumps(guest))
    command = [sys.executable, str(ROOT / "bench/compare.py"), "--report", str(tmp_path / "compare.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "Emulated &lt;disks&gt; are slow." in page and "Samples per second in the guest" in page
    reached = {each["what"]: each["reached"] for each in json.loads((tmp_path / "compare.json").read_text())["targets"] if "Ext4" in each["what"]}
    assert [reached[what] for what in sorted(reached)] == [True, False]  # chunk: 50 times; full: twice


def changed(path, how):
    path.write_bytes(how(path.read_bytes()))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda files: changed(files[7], lambda old: old[:100] + bytes([old[100] ^ 1]) + old[101:]), id="one bit differs"),
        pytest.param(lambda files: changed(files[7], lambda old: old[:-1]), id="a byte is missing"),
        pytest.param(lambda files: files[7].unlink(), id="a sample is missing"),
        pytest.param(lambda files: shutil.copy(files[8], files[7]), id="a sample comes twice instead of another"),
    ],
)
def test_a_peer_that_delivers_wrong_bytes_is_found(tmp_path, damage):
    options = ["--sets", "512B", "--peers", "files", "--parts", "peers", "--keep"]
    assert compare(tmp_path, *options).returncode == 0
    damage(sorted((tmp_path / "work/512B/files").rglob("*.bin")))
    done = compare(tmp_path, *options)
    assert done.returncode == 1
    assert "files on 512B delivered" in done.stderr
    (check,) = json.loads((tmp_path / "out/compare.json").read_text())["checks"]
    assert not check["ok"] and check["checksum"] != check["expected_checksum"]
    assert '<span class="bad">NO</span>' in (tmp_path / "out/report.html").read_text()


def test_a_peer_whose_package_does_not_import_is_listed_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "broken/lmdb").mkdir(parents=True)
    (tmp_path / "broken/lmdb/__init__.py").write_text("raise ImportError('built for <another> machine')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    assert compare(tmp_path, "--sets", "512B", "--peers", "files,lmdb", "--parts", "peers").returncode == 0
    peers = {each["key"]: each for each in json.loads((tmp_path / "out/compare.json").read_text())["peers"]}
    assert peers["files"]["measured"] and not peers["lmdb"]["measured"] and "built for <another> machine" in peers["lmdb"]["why_not"]
    assert "built for &lt;another&gt; machine" in (tmp_path / "out/report.html").read_text()


def test_a_peer_without_its_package_is_listed_with_the_reason(tmp_path):
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from peers import all_peers
    finally:
        sys.path.remove(str(ROOT / "bench"))
    absent = [key for key, peer in all_peers().items() if any(not _has(module) for module in peer.modules)]
    if not absent:
        pytest.skip("every peer's package is installed here")
    assert compare(tmp_path, "--sets", "512B", "--peers", f"files,{absent[0]}", "--parts", "peers").returncode == 0
    peers = {each["key"]: each for each in json.loads((tmp_path / "out/compare.json").read_text())["peers"]}
    assert peers["files"]["measured"] and not peers[absent[0]]["measured"] and "not installed" in peers[absent[0]]["why_not"]
    assert html.escape(peers[absent[0]]["why_not"]) in (tmp_path / "out/report.html").read_text()


def _has(module):
    done = subprocess.run([sys.executable, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module.split('.')[0]!r}) is None)"])
    return done.returncode == 0


@pytest.mark.parametrize("arguments", [["--sets", "nonsense"], ["--peers", "nonsense"], ["--parts", "nonsense"], ["--dlfs", "/nonexistent"]])
def test_a_wrong_option_is_named_and_nothing_is_measured(tmp_path, arguments):
    done = compare(tmp_path, *arguments)
    assert done.returncode == 1 and arguments[1] in done.stderr and not (tmp_path / "out").exists()


# ---- in a browser ----

PROBE = """<script>
const box = element => { const r = element.getBoundingClientRect(); return [r.left, r.right, r.width, r.height]; };
parent.document.body.setAttribute("data-probe", JSON.stringify({
  width: innerWidth, scroll: document.documentElement.scrollWidth, plots: [...document.querySelectorAll("svg.plot")].map(box),
  lines: [...document.querySelectorAll("svg.plot")].map(svg => svg.querySelectorAll("path").length),
  ids: [...document.querySelectorAll("[id]")].map(e => e.id), paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.querySelector("svg.plot")).color, sections: document.querySelectorAll("section").length,
}));
</script></main>"""


def opened(page, tmp_path, width, *flags):
    """What a browser makes of the page in a frame of a width (its windows cannot be as narrow as a phone)."""
    framed = html.escape(page.replace("</main>", PROBE))
    outer = tmp_path / "outer.html"
    outer.write_text(f'<!doctype html><meta charset="utf-8"><body><iframe srcdoc="{framed}" style="border:0;width:{width}px;height:900px"></iframe>')
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,1000", "--virtual-time-budget=2000", *flags, "--dump-dom", outer.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    found = re.search(r' data-probe="([^"]*)"', done.stdout)
    assert found, f"the browser showed nothing: {done.stderr[-2000:]}"
    return json.loads(html.unescape(found.group(1)))


@pytest.mark.skipif(BROWSER is None, reason="SKIPPED: no Chromium is installed (apt-get install chromium)")
@pytest.mark.parametrize("width", [1280, 768, 390, 340])
def test_the_page_fits_a_desktop_and_a_phone(run, tmp_path, width):
    seen = opened((run[0] / "report.html").read_text(), tmp_path, width)
    assert seen["width"] == width
    assert seen["scroll"] <= width, "no horizontal scrolling"
    assert seen["sections"] >= 6 and len(seen["plots"]) >= 9
    for left, right, wide, high in seen["plots"]:
        assert 0 <= left and right <= width and wide >= 250 and high >= 60
    assert min(seen["lines"]) >= 5, "every plot has something drawn in it"
    assert len(seen["ids"]) == len(set(seen["ids"])), "identifiers are unique"


@pytest.mark.skipif(BROWSER is None, reason="SKIPPED: no Chromium is installed (apt-get install chromium)")
def test_the_page_is_dark_for_those_who_want_it_dark(run, tmp_path):
    def brightness(colour):
        return sum(int(each) for each in re.findall(r"\d+", colour)[:3])

    page = (run[0] / "report.html").read_text()
    light = opened(page, tmp_path, 800, "--blink-settings=preferredColorScheme=1")
    dark = opened(page, tmp_path, 800, "--blink-settings=preferredColorScheme=0")
    assert brightness(light["paper"]) > 700 and brightness(light["ink"]) < 150
    assert brightness(dark["paper"]) < 150 and brightness(dark["ink"]) > 600
