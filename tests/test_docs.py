"""Documents that lie are worse than none: links lead somewhere, and the symbols that architecture.md names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")] if p.is_file()
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# [`Symbol`](path/to/file.h): the file must define or declare Symbol.
SYMBOL = re.compile(r"\[`([A-Za-z_:]+)(?:\(\))?`\]\(([^)\s#]+)\)")


def anchors(text: str) -> set[str]:
    """GitHub's anchor of every heading."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = document.read_text()
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{document.name}: {target} does not exist"
        if anchor:
            assert anchor in anchors(file.read_text()), f"{document.name}: {target} has no such heading"


def test_the_architecture_names_symbols_that_exist():
    document = ROOT / "docs" / "architecture.md"
    named = SYMBOL.findall(document.read_text())
    assert len(named) > 15
    for symbol, target in named:
        source = (document.parent / target).resolve().read_text()
        last = symbol.split("::")[-1]
        assert re.search(rf"\b{re.escape(last)}\b", source), f"{target} has no {symbol}"


def test_the_architecture_maps_every_module():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = (ROOT / "cmake" / "modules.txt").read_text().splitlines()
    for module in [row.split(":")[0] for row in rows if row and not row.startswith("#")]:
        assert f"`{module}`" in text, f"docs/architecture.md does not mention module {module}"


def test_no_source_file_is_longer_than_800_lines():
    for path in ROOT.glob("**/*"):
        if path.suffix in {".cc", ".h", ".hpp", ".py", ".c"} and not {"build", ".venv", ".venv-bench", ".cache"} & set(path.relative_to(ROOT).parts):
            lines = len(path.read_text(errors="replace").splitlines())
            assert lines <= 800, f"{path.relative_to(ROOT)} has {lines} lines"
