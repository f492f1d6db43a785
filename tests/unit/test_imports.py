"""What may import what: no torch at run time, and arrows that point one way."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import ov_specdec

PACKAGE = Path(ov_specdec.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
_, DIAGRAM, _ = ARCHITECTURE.read_text(encoding="utf-8").split("```")
LAYERS = [set(line.partition("|")[0].split()) for line in DIAGRAM.strip().splitlines()[::-1]]
"""From the bottom up, as docs/architecture.md draws it: modules and packages at the top of
ov_specdec, each of which imports only from layers below its own."""

MAY_IMPORT_OPENVINO = (
    "runner/block_memory.py",
    "runner/encoder_decoder.py",
    "runner/packed.py",
    "runner/paged.py",
    "runner/state_batch.py",
    "runner/stateful.py",
    "graph/",
    "models/",
)
HEAVY = (
    *("torch", "optimum", "gradio", "pandas", "matplotlib", "av"),
    *("openvino_genai", "openvino_tokenizers", "fastapi", "prometheus_client", "uvicorn", "ray"),
)
# Inside functions, or in modules that are imported inside functions: see the test at the end.
MAY_IMPORT_HEAVY = (
    *("cluster/", "demo/", "server/"),
    *("models/eagle3.py", "models/heads.py", "models/optimum_process.py"),
    *("sampling/processors.py", "speech/audio.py"),
)

FILES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE or path.name not in ("__init__.py", "__main__.py")
]


def name_of(path):
    """A file as a module: ("cache", "paged")."""
    return path.relative_to(PACKAGE).with_suffix("").parts


@cache
def imports(path):
    """The names of all modules that a file imports, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module)
    return found


def may_import(file, name):
    """Whether a file may import a module."""
    level = {module: i for i, layer in enumerate(LAYERS) for module in layer}
    unit = Path(file).with_suffix("").parts[0]
    package, *rest = name.split(".")
    if package == "ov_specdec" and rest and rest[0] != unit:
        return level[rest[0]] < level[unit]
    if package == "openvino":
        return file.startswith(MAY_IMPORT_OPENVINO)
    return package not in HEAVY or file.startswith(MAY_IMPORT_HEAVY)


def test_imports_point_down():
    wrong = [
        f"{file} imports {name}"
        for path in FILES
        for file in [path.relative_to(PACKAGE).as_posix()]
        for name in imports(path)
        if not may_import(file, name)
    ]
    assert not wrong


def test_no_modules_import_each_other():
    modules = {".".join(("ov_specdec", *name_of(path))): set(imports(path)) for path in FILES}
    assert len(modules) > 100
    TopologicalSorter(modules).prepare()  # raises CycleError


def test_the_package_imports_nothing_heavy():
    code = (
        "import sys; from ov_specdec import SpeculativePipeline; "
        f"print({{'transformers', *{HEAVY}}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
