"""Fails on an #include against the module table in cmake/modules.txt. Runs under pytest or by itself."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# The headers of include/dlfs that belong to base; the rest are the API's.
BASE_PUBLIC = {"dlfs/result.h"}


def table(text: str) -> dict[str, set[str]]:
    rows = (line.split(":", 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name.strip(): set(allowed.split()) for name, allowed in rows}


def violations(name: str, source: str, allowed: set[str], modules: set[str]) -> list[str]:
    """Includes in `source`, a file of module `name`, that its row does not allow."""
    wrong = []
    for include in INCLUDE.findall(source):
        if include.startswith("dlfs/"):
            if include not in BASE_PUBLIC and name != "api" and "api" not in allowed:
                wrong.append(f"{include} (a header of the API)")
            continue
        module = include.split("/", 1)[0]
        if module in modules and module != name and module not in allowed:
            wrong.append(include)
    return wrong


def sources():
    for folder, name in [(p, p.name) for p in sorted((ROOT / "src").iterdir()) if p.is_dir()] + [
        (ROOT / "tools" / "dlfs", "tools"),
        (ROOT / "python", "python"),
    ]:
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".h", ".cc", ".hpp", ".cpp"}:
                yield name, path


def test_no_include_breaks_the_table():
    rows = table((ROOT / "cmake" / "modules.txt").read_text())
    checked, wrong = 0, []
    for name, path in sources():
        assert name in rows, f"module {name} has no row in cmake/modules.txt"
        checked += 1
        found = violations(name, path.read_text(), rows[name], set(rows))
        wrong += [f"{path.relative_to(ROOT)}: {item}" for item in found]
    assert checked > 20
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_cycle_and_its_order_is_the_order_of_dependency():
    seen: set[str] = set()
    for name, allowed in table((ROOT / "cmake" / "modules.txt").read_text()).items():
        assert allowed <= seen, f"{name} depends on {allowed - seen}, which comes later"
        seen.add(name)


def test_the_check_itself_finds_a_wrong_include():
    modules = {"base", "order", "volume", "api"}
    assert violations("order", '#include "volume/volume.h"\n', {"base"}, modules) == ["volume/volume.h"]
    assert violations("order", '#include "base/mix.h"\n#include "order/order.h"\n', {"base"}, modules) == []
    assert violations("order", '#include "dlfs/dlfs.hpp"\n', {"base"}, modules)


if __name__ == "__main__":
    for test in [value for key, value in list(globals().items()) if key.startswith("test_")]:
        test()
    print("include table: ok")
    sys.exit(0)
