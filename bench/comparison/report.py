"""The report: one HTML page that needs nothing else, from a run's results."""

from __future__ import annotations

import html
from statistics import median
from typing import Any

from . import plots
from .plots import human, size_text
from .targets import Figures

CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fdfdfc; --card: #f4f4f2; --grid: #d9d9d6; --soft: #5d6570; --good: #187a3c; --bad: #b3261e; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --paper: #15181b; --card: #1e2226; --grid: #3a4047; --soft: #a2abb5; --good: #6bd08f; --bad: #ff8a80; --link: #7ab8f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .4rem 0; } h2 { margin: 2.2rem 0 .6rem; font-size: 1.25rem; } h3 { margin: .2rem 0 .4rem; font-size: 1rem; }
p, li { max-width: 75ch; } .soft { color: var(--soft); } a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .8rem 0; }
.lead { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); margin: 1rem 0; }
.lead div { background: var(--card); border-radius: .6rem; padding: .8rem 1rem; } .lead b { display: block; font-size: 1.6rem; line-height: 1.2; }
.plots { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); align-items: start; }
figure { margin: 0; background: var(--card); border-radius: .6rem; padding: .8rem; min-width: 0; } figcaption { font-weight: 600; margin-bottom: .4rem; }
svg.plot { display: block; width: 100%; height: auto; max-width: 640px; margin: 0 auto; }
.scroll { overflow-x: auto; background: var(--card); border-radius: .6rem; } table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--grid); vertical-align: top; } th { white-space: nowrap; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.ours td { font-weight: 600; } .good { color: var(--good); font-weight: 700; } .bad { color: var(--bad); font-weight: 700; }
pre { background: var(--card); padding: .8rem; border-radius: .6rem; overflow-x: auto; font-size: .85rem; } code { overflow-wrap: anywhere; } details { margin: .5rem 0; } summary { cursor: pointer; font-weight: 600; }
@media (max-width: 600px) { main { padding: .8rem; } table.targets thead { display: none; } table.targets td { display: block; border: 0; padding: .1rem .7rem; text-align: left; } table.targets tr { display: block; border-bottom: 1px solid var(--grid); padding: .5rem 0; } table.targets td.n { text-align: left; white-space: normal; } table.targets td[data-label]:not([data-label=""]):not([data-label="what"])::before { content: attr(data-label) ": "; color: var(--soft); font-weight: 400; } }
"""


def esc(text: object) -> str:
    return html.escape(str(text))


def table(head: list[str], rows: list[list[str]], numbers: set[int], css: str = "", ours: set[int] = frozenset()) -> str:  # type: ignore[assignment]
    """Cells are HTML already."""
    def cls(i: int) -> str:
        return ' class="n"' if i in numbers else ""

    top = "".join(f"<th{cls(i)}>{esc(text)}</th>" for i, text in enumerate(head))
    body = "".join(
        f'<tr{" class=ours" if r in ours else ""}>' + "".join(f'<td{cls(i)} data-label="{esc(head[i])}">{cell}</td>' for i, cell in enumerate(cells)) + "</tr>"
        for r, cells in enumerate(rows)
    )
    return f'<div class="scroll"><table class="{css}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    figures = Figures(results)
    sections = [
        ("targets", "What must be reached", targets_section(results)),
        ("sizes", "By sample size", sizes_section(figures)),
        ("sets", "Cold and warm, peer by peer", sets_section(figures)),
        ("ranks", "Scaling with ranks", ranks_section(figures)),
        ("guest", "Against Ext4 over kernel NVMe/TCP", guest_section(results)),
        ("opening", "Opening many samples", opening_section(figures)),
        ("device", "The raw device", device_section(figures)),
        ("peers", "The peers, and what their shuffle really is", peers_section(results)),
        ("method", "How it was measured", method_section(results)),
    ]
    sections = [each for each in sections if each[2]]
    nav = "".join(f'<a href="#{key}">{esc(title)}</a>' for key, title, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{esc(title)}</h2>{text}</section>' for key, title, text in sections)
    quick = "<p><b>A quick run</b>: small data sets and one round. It shows that everything works; the figures are rough.</p>" if results["quick"] else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>DLFS and its peers</title><style>{CSS}</style></head><body><main><h1>DLFS and its peers, on the same bytes</h1>"
        f'<p class="soft">{esc(results["started"])} · commit {esc(results["environment"]["commit"])} · {esc(results["environment"]["processor"])}, '
        f'{results["environment"]["cores"]} cores</p>{quick}{lead(figures)}<nav>{nav}</nav>{body}</main></body></html>\n'
    )


def lead(figures: Figures) -> str:
    """The figures that a reader wants first."""
    known = [each for each in figures.results["targets"] if each["reached"] is not None]
    cards = [(f"{sum(each['reached'] for each in known)} of {len(known)}", "targets reached")]
    small = min(figures.sets.values(), key=lambda each: each["mean_bytes"], default=None)
    if small:
        for state in ("cold", "warm"):
            values = figures.middle(small["name"], figures.ours(small["name"], "chunk", state), state)
            if values:
                cards.append((human(median(values)), f"samples/s, {small['title']}, chunk, {state}, in Python"))
    best = next((each for each in known if "against one file a sample, plain loop" in each["what"] and "cold" in each["what"]), None)
    if best:
        cards.append((f"{best['ratio']:.0f}×", "one file a sample, cold, plain loop"))
    return '<div class="lead">' + "".join(f"<div><b>{esc(a)}</b>{esc(b)}</div>" for a, b in cards) + "</div>"


def targets_section(results: dict[str, Any]) -> str:
    words = {True: '<span class="good">reached</span>', False: '<span class="bad">not reached</span>', None: '<span class="soft">–</span>'}
    rows = [
        [esc(each["what"]) + (f'<br><span class="soft">{esc(each["detail"])}</span>' if each["detail"] else ""), esc(each["wanted"]), esc(each["measured"]), words[each["reached"]]]
        for each in results["targets"]
    ]
    return "<p>Medians of ratios within one round; the least and the greatest in brackets.</p>" + table(["what", "wanted", "measured", ""], rows, set(), "targets")


def gallery(charts: list[tuple[str, str | None]]) -> str:
    shown = [f"<figure><figcaption>{esc(title)}</figcaption>{svg}</figure>" for title, svg in charts if svg]
    return f'<div class="plots">{"".join(shown)}</div>' if shown else ""


def sizes_section(figures: Figures) -> str:
    charts = []
    for field, label, words in (
        ("samples_per_s", "samples/s", "Samples per second"),
        ("cpu_s_per_million", "CPU-seconds a million samples", "CPU per sample"),
    ):
        for state in ("cold", "warm"):
            title = f"{words}, {state}"
            charts.append((title, plots.by_size(figures, state, field, label, title)))
    return gallery(charts)


def sets_section(figures: Figures) -> str:
    parts = []
    for name, each in figures.sets.items():
        title = f"{each['title']}: {each['samples']:,} samples, {each['bytes'] / 2**20:,.0f} MiB"
        charts = [
            (f"Samples per second, {each['title']}", plots.cold_and_warm(figures, name, "samples_per_s", "samples/s", f"Samples per second {name}")),
            (f"CPU per sample, {each['title']}", plots.cold_and_warm(figures, name, "cpu_s_per_million", "CPU-seconds a million samples", f"CPU per sample {name}")),
        ]
        parts.append(f"<h3>{esc(title)}</h3>{gallery(charts)}<details><summary>All figures</summary>{set_table(figures, name)}</details>")
    return "".join(parts)


def set_table(figures: Figures, name: str) -> str:
    head = ["peer", "state", "samples/s", "spread", "MB/s", "CPU-s/million", "peak memory, MiB", "open, s", "first batch, s", "same bytes"]
    rows, ours = [], set()
    checks = {check["peer"]: check["ok"] for check in figures.results["checks"] if check["set"] == name}
    for key, peer in figures.peers.items():
        for state in ("cold", "warm"):
            rates = figures.middle(name, key, state)
            if not rates:
                continue
            if key.startswith("dlfs"):
                ours.add(len(rows))

            def middle(field: str, key: str = key, state: str = state) -> float:
                return median(figures.middle(name, key, state, field))

            spread = f"{human(min(rates))}–{human(max(rates))}" if len(rates) > 1 else "one round"
            same = {True: '<span class="good">yes</span>', False: '<span class="bad">NO</span>', None: "unchecked"}[checks.get(key)]
            grown = middle("peak_memory_bytes") / 2**20
            rows.append([
                esc(peer["name"]), state, human(median(rates)), spread, f"{middle('bytes_per_s') / 1e6:,.0f}", f"{middle('cpu_s_per_million'):.3g}",
                f"{grown:,.0f}", f"{middle('open_s'):.3f}", f"{middle('first_batch_s'):.4f}", same,
            ])  # fmt: skip
    return table(head, rows, set(range(2, 9)), ours=ours)


def ranks_section(figures: Figures) -> str:
    title = "One and two ranks, cold"
    chart = gallery([(title, plots.ranks(figures, title))])
    words = "<p>Two processes that share every batch, each with its own cache, on the same file; from their common start to the end of the slower one.</p>"
    return words + chart if chart else ""


def guest_section(results: dict[str, Any]) -> str:
    guest = results.get("guest")
    if not guest:
        return "<p>Not measured in this run: it needs the virtual machine of the interoperability tests (<code>bench/guest.py</code>).</p>"
    charts = [
        ("Samples per second in the guest", plots.guest(results, "samples_per_s", "samples/s", "Samples per second in the guest")),
        ("CPU per sample in the guest", plots.guest(results, "cpu_s_per_million", "CPU-seconds a million samples", "CPU per sample in the guest")),
    ]
    facts = "".join(f"<li>{esc(key)}: {esc(value)}</li>" for key, value in guest.get("environment", {}).items())
    return f"<p>{esc(guest.get('distortions', ''))}</p>{gallery(charts)}<details><summary>The machine</summary><ul>{facts}</ul></details>"


def opening_section(figures: Figures) -> str:
    rows = []
    for key, peer in figures.peers.items():
        found = [each for each in figures.results["opening"] if each["peer"] == key]
        if found:
            grown = median(each["peak_memory_bytes"] - each["memory_before_bytes"] for each in found) / 2**20
            rows.append([
                esc(peer["name"]), f"{found[0]['samples']:,}", f"{median(each['open_s'] for each in found):.3f}",
                f"{median(each['first_batch_s'] for each in found):.3f}", f"{grown:,.0f}",
            ])  # fmt: skip
    if not rows:
        return ""
    return "<p>Page cache dropped; from the call that opens. One file a sample: of a stated part.</p>" + table(
        ["peer", "samples", "open, s", "open and first batch, s", "memory, MiB"], rows, {1, 2, 3, 4}
    )


def device_section(figures: Figures) -> str:
    rows = []
    for name, each in figures.sets.items():
        found = [point for point in figures.results["device"] if point["set"] == name]
        for tool, size, depth in dict.fromkeys((point["tool"], point["size_bytes"], point["depth"]) for point in found):
            points = [point for point in found if (point["tool"], point["size_bytes"], point["depth"]) == (tool, size, depth)]
            rows.append([
                esc(each["title"]), esc(tool), size_text(size), str(depth), human(median(point["iops"] for point in points)),
                f"{median(point['bytes_per_s'] for point in points) / 1e6:,.0f}", f"{median(point['cpu_s_per_million'] for point in points):.3g}",
            ])  # fmt: skip
    native = []
    for name, each in figures.sets.items():
        for mode in ("chunk", "full"):
            found = [point for point in figures.results["native"] if (point["set"], point["mode"]) == (name, mode)]
            if found:
                native.append([
                    esc(each["title"]), mode, human(median(point["samples_per_s"] for point in found)), f"{median(point['bytes_per_s'] for point in found) / 1e6:,.0f}",
                    f"{median(point['cpu_s_per_million'] for point in found):.3g}", f"{median(point['amplification'] for point in found):.3f}",
                ])  # fmt: skip
    if not rows:
        return ""
    return (
        "<p>Random O_DIRECT reads of the same file that DLFS reads. With huge pages (as DLFS has them) a request is one piece of memory, which a virtual disk rewards. Below, DLFS without Python (<code>dlfs bench</code>), one cold epoch.</p>"
        + table(["file of", "tool", "request", "depth", "IOPS", "MB/s", "CPU-s/million"], rows, set(range(3, 7)))
        + "<h3>DLFS without Python, cold</h3>"
        + table(["data set", "mode", "samples/s", "MB/s of payload", "CPU-s/million", "device bytes a payload byte"], native, set(range(2, 6)))
    )


def peers_section(results: dict[str, Any]) -> str:
    rows = []
    for peer in results["peers"]:
        part = f" Only the first {peer['most_samples']:,} samples of a set." if peer["most_samples"] else ""
        state = "measured" if peer["measured"] else f'<span class="bad">not measured</span>: {esc(peer["why_not"])}'
        rows.append([esc(peer["name"]), esc(peer["shuffle"] + part), esc(peer["versions"] or "–"), state])
    failures = "".join(f"<li>{esc(each['peer'])} on {esc(each['set'])}: {esc(each['why'])}</li>" for each in results["failures"])
    notes = "".join(f"<li>{esc(note)}</li>" for note in dict.fromkeys(results["notes"]))
    return table(["peer", "shuffle", "package", ""], rows, set()) + (f"<ul>{failures}{notes}</ul>" if failures or notes else "")


def method_section(results: dict[str, Any]) -> str:
    facts = "".join(f"<li>{esc(key.replace('_', ' '))}: {esc(value)}</li>" for key, value in results["environment"].items())
    checks = results["checks"]
    good = sum(check["ok"] for check in checks)
    return f"""
<ul>
<li>Every measurement runs in a process of its own; imports are over before the clock starts. The peers take turns within a round, in another order each round; DLFS several times in each, of which the median counts.</li>
<li>Samples are raw bytes in random order, in batches of {results["batch"]}. Every peer hands out each sample as an object whose bytes are in memory; nothing is decoded. A measurement ends with the epoch, or after {results["seconds"]:g} s; the rest of the epoch is then
reckoned at the rate of what followed the first batch.</li>
<li>Cold: {esc(results["cache"])}. Warm: every file was read into the page cache, and an epoch drawn before the one that counts. DLFS reads with O_DIRECT and passes the page cache by, so that its default is the same cold and warm apart from
its own cache of 256 MiB (what lies there is handed out as views, without a copy, so that its bytes/s can exceed those of the memory); whoever has the memory gives it to <code>cache_bytes</code>, and that is the line "cache_bytes = data set".</li>
<li>Before each measurement 640 MiB of memory are taken, written to and given back, so that whoever is measured gets pages that the machine has: virtual machines return idle memory to their hosts, and
the first touch of such a page is 20 times as dear.</li>
<li>The same work: in an epoch that is not timed, the BLAKE2b digests of all delivered samples are added up and distinct ones counted, and compared with those of the source: {good} of {len(checks)} agree.</li>
<li>CPU: user and system time of the process, its threads and its workers. Memory: anonymous, shared and huge pages of the same (mapped files do not count), looked at every 50 ms.</li>
</ul>
<pre>./dev bench{" --quick" if results["quick"] else ""}        # installs the peers, then:
{esc(results["command"])}
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --filename=set.dlfs --readonly --rw=randread --ioengine=io_uring --direct=1 --bs=256k --iodepth=32
dlfs bench device set.dlfs --size 256KiB --depth 32
dlfs bench set.dlfs --mode chunk --batch 256 --no-raw</pre>
<details open><summary>Environment</summary><ul>{facts}</ul></details>"""
