"""What may import what: no torch at run time, and arrows that point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ov_specdec

PACKAGE = Path(ov_specdec.__file__).parent

# From the bottom up; a module imports only from layers below its own, or from its own layer if
# that stands above in docs/architecture.md.
LAYERS = (
    {"errors", "palette", "yardstick"},
    {"checks", "stats"},
    {"session", "policy", "cost", "rows"},
    {"distribution", "blocks", "locate", "experience"},
    {"dice", "warp", "processors", "folder", "adaptive"},
    {"config"},
    {"verify"},
    {"rules"},
    {"drafters", "sampling"},
    {"tokenizer", "guard", "streaming", "stateful", "paged", "devices", "export"},
    {"source", "engine"},
    {"loading", "generator"},
    {"profile"},
    {"pipeline", "expansion"},
    {"tuning", "bench", "demo"},
    {"cli"},
)
MAY_IMPORT_OPENVINO = {
    *("source", "loading", "devices", "stateful", "paged", "rows"),
    *("bench", "expansion"),
}
HEAVY = (
    *("torch", "optimum", "gradio", "pandas", "matplotlib"),
    *("openvino_genai", "openvino_tokenizers"),
)
# Inside functions, or in modules that are imported inside functions: see the test at the end.
MAY_IMPORT_HEAVY = {"bench", "demo"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if name not in ("__init__", "__main__"):
            yield name, path


def imports(path):
    """The names of all modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: str(value))
def test_imports_point_down(name, path):
    level = {module: i for i, layer in enumerate(LAYERS) for module in layer}
    for imported in imports(path):
        package, _, rest = imported.partition(".")
        target = rest.partition(".")[0]
        if package == "ov_specdec" and target and target != name:
            assert level[target] < level[name], f"{name} imports {target}"
        if package == "openvino":
            assert name in MAY_IMPORT_OPENVINO
        assert package not in HEAVY or name in MAY_IMPORT_HEAVY


def test_files_stay_short():
    for _, path in modules():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 250, path


def test_the_package_imports_nothing_heavy():
    code = f"import sys, ov_specdec.cli; print({{'transformers', *{HEAVY}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
