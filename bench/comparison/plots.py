"""The report's plots, as SVG that takes its ink from the page, so that it is right in light and dark."""

from __future__ import annotations

import io
import re
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: E402

from .targets import Figures  # noqa: E402

INK, GRID = "#010203", "#040506"  # stand-ins, replaced by the page's colours
COLOURS = {
    "dlfs-chunk": "#d6336c", "dlfs-full": "#f76707", "dlfs-chunk-resident": "#d6336c", "dlfs-full-resident": "#f76707",
    "files": "#4c6ef5", "files-loader-0": "#748ffc", "files-loader-1": "#748ffc", "files-loader-2": "#91a7ff", "webdataset": "#12b886",
    "streaming": "#15aabf", "litdata": "#7048e8", "tfrecord": "#e8a20c", "array-record": "#74b816", "lmdb": "#1098ad", "hdf5": "#ae3ec9",
    "memory-map": "#868e96", "webdataset-2": "#12b886", "streaming-2": "#15aabf", "litdata-2": "#7048e8",
}  # fmt: skip
MARKERS = "osD^vPX*<>hdp"


def _style() -> dict[str, Any]:
    return {
        "svg.fonttype": "none", "svg.hashsalt": "dlfs", "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": GRID, "axes.labelcolor": INK,
        "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6,
        "axes.spines.top": False, "axes.spines.right": False, "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
        "legend.frameon": False, "legend.fontsize": 8.5, "legend.labelcolor": INK,
    }  # fmt: skip


def _svg(figure: Any, title: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", pad_inches=0.05, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(GRID, "var(--grid)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1)
    # Identifiers are unique within a page, not only within a plot.
    prefix = re.sub(r"\W", "", title)[:24]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", svg)
    return svg.replace("<svg", f'<svg class="plot" role="img" aria-label="{title}"', 1)


def human(value: float, _: Any = None) -> str:
    """1500000 -> 1.5M"""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


def size_text(value: float, _: Any = None) -> str:
    for unit, scale in ((" MiB", 1 << 20), (" KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.0f} B"


def by_size(figures: Figures, state: str, field: str, label: str, title: str) -> str | None:
    """A line a peer over the sizes of samples."""
    sets = sorted((each for each in figures.sets.values() if each["one_size"]), key=lambda each: each["mean_bytes"])
    if len(sets) < 2:
        return None
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(5.8, 4.4))
        for i, (key, peer) in enumerate(figures.peers.items()):
            points = [(each["mean_bytes"], figures.middle(each["name"], key, state, field)) for each in sets]
            points = [(x, values) for x, values in points if values and median(values) > 0]
            if not points:
                continue
            ours = key.startswith("dlfs")
            middle = [median(values) for _, values in points]
            axes.plot(
                [x for x, _ in points], middle, color=COLOURS.get(key, "#868e96"), label=peer["name"], linewidth=2.6 if ours else 1.2,
                marker=MARKERS[i % len(MARKERS)], markersize=6 if ours else 4, linestyle="--" if key.endswith(("resident", "-2")) or peer["bound"] else "-",
                zorder=3 if ours else 2,
            )  # fmt: skip
            axes.fill_between(
                [x for x, _ in points], [min(v) for _, v in points], [max(v) for _, v in points], color=COLOURS.get(key, "#868e96"), alpha=0.12, linewidth=0
            )
        axes.set(xscale="log", yscale="log", xlabel="bytes a sample", ylabel=label)
        axes.set_xticks([each["mean_bytes"] for each in sets])
        axes.xaxis.set_major_formatter(FuncFormatter(size_text))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(human))
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.14), ncol=2)
        return _svg(figure, title)


def cold_and_warm(figures: Figures, name: str, field: str, label: str, title: str) -> str | None:
    """Two bars a peer on one data set, best first; the thin line is the spread over the rounds."""
    rows = []
    for key, peer in figures.peers.items():
        values = {state: figures.middle(name, key, state, field) for state in ("cold", "warm")}
        if any(values.values()):
            rows.append((max(median(each) for each in values.values() if each), key, peer["name"], values))
    if not rows:
        return None
    rows.sort(reverse=field != "samples_per_s")
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(5.8, 0.9 + 0.34 * len(rows)))
        axes.grid(axis="y", visible=False)
        for y, (_, key, _, values) in enumerate(rows):
            for state, offset, alpha in (("cold", -0.18, 1.0), ("warm", 0.18, 0.5)):
                if values[state]:
                    middle = median(values[state])
                    axes.barh(y + offset, middle, 0.34, color=COLOURS.get(key, "#868e96"), alpha=alpha, linewidth=0)
                    axes.plot([min(values[state]), max(values[state])], [y + offset] * 2, color=INK, linewidth=0.8)
                    axes.annotate(human(middle), (middle, y + offset), xytext=(3, 0), textcoords="offset points", va="center", fontsize=6.5)
        axes.set_yticks(range(len(rows)), [text for _, _, text, _ in rows])
        axes.set(xscale="log", xlabel=f"{label} (full colour: cold, pale: warm)")
        axes.xaxis.set_major_formatter(FuncFormatter(human))
        axes.margins(x=0.12)
        return _svg(figure, title)


def ranks(figures: Figures, title: str) -> str | None:
    """Samples/s of one and two ranks together."""
    rows = figures.results["ranks"]
    groups = list(dict.fromkeys((each["set"], each["mode"]) for each in rows))
    if not groups:
        return None
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(5.8, 1.0 + 0.5 * len(groups)))
        axes.grid(axis="y", visible=False)
        for y, (name, mode) in enumerate(groups):
            for count, offset, alpha in ((1, -0.2, 0.5), (2, 0.2, 1.0)):
                values = [each["samples_per_s"] for each in rows if (each["set"], each["mode"], each["ranks"]) == (name, mode, count)]
                if values:
                    axes.barh(y + offset, median(values), 0.38, color=COLOURS[f"dlfs-{mode}"], alpha=alpha, linewidth=0)
                    text = f"{human(median(values))}, {count} rank{'s' if count > 1 else ''}"
                    axes.annotate(text, (median(values), y + offset), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7.5)
        axes.set_yticks(range(len(groups)), [f"{figures.sets[name]['title']}, {mode}" for name, mode in groups])
        axes.set(xscale="log", xlabel="samples/s of all ranks together")
        axes.xaxis.set_major_formatter(FuncFormatter(human))
        axes.margins(x=0.3)
        return _svg(figure, title)


def guest(results: dict[str, Any], field: str, label: str, title: str) -> str | None:
    """Ext4 over the kernel's NVMe/TCP and DLFS, in a virtual machine, by sample size."""
    rows = [each for each in (results.get("guest") or {}).get("rows", []) if each.get(field)]
    if not rows:
        return None
    colours = {"dlfs chunk": "#d6336c", "dlfs full": "#f76707", "ext4 files": "#4c6ef5", "ext4 packed": "#12b886"}
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(5.8, 4.2))
        for reader, queues in sorted({(each["reader"], each["queues"]) for each in rows}):
            points = sorted((each["sample_bytes"], each[field]) for each in rows if (each["reader"], each["queues"]) == (reader, queues))
            axes.plot(
                [x for x, _ in points], [median(values) for _, values in points], color=colours.get(reader, "#868e96"), marker="o", markersize=4,
                linestyle="-" if queues == 1 else "--", linewidth=2.4 if reader.startswith("dlfs") else 1.3,
                label=f"{reader}, {queues} queue{'s' if queues > 1 else ''}",
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="bytes a sample", ylabel=label)
        axes.set_xticks(sorted({each["sample_bytes"] for each in rows}))
        axes.xaxis.set_major_formatter(FuncFormatter(size_text))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(human))
        axes.tick_params(axis="x", labelsize=7.5)
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.14), ncol=2)
        return _svg(figure, title)
