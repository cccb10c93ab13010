"""Every public name explains itself by an example that runs."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import conftest
import fedmin

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = {"CheckpointError"}  # only ever raised by the library: its words are enough


def public(module) -> list[str]:
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]


@pytest.mark.parametrize("name", [*public(fedmin), *sorted(fedmin._PLACES.keys() - fedmin.__all__)])
def test_public_names_are_documented(name):
    doc = inspect.getdoc(getattr(fedmin, name)) or ""
    assert len(doc.split()) >= 3, f"fedmin.{name} has no docstring"
    assert ">>>" in doc or name in CONTRACTS, f"fedmin.{name} has no example"
    assert ">>>" not in doc or name not in CONTRACTS, f"fedmin.{name} has one: not a contract"


def test_contracts_are_public_names():
    assert set(fedmin.__all__) >= CONTRACTS


def test_all_is_complete():
    lazy = {"FederatedClassifier", "FederatedRegressor"}
    named = {n for n in vars(fedmin) if not n.startswith("_")} | lazy
    values = {n for n in named if not inspect.ismodule(getattr(fedmin, n))}
    assert values == set(public(fedmin))


@pytest.mark.parametrize(
    "name", [n for n in fedmin.data.__all__ if callable(getattr(fedmin.data, n))]
)
def test_data_names_are_documented(name):
    assert len((inspect.getdoc(getattr(fedmin.data, name)) or "").split()) >= 3


ONLY = os.environ.get("FEDMIN_EXAMPLES", "")  # of this module; tests/mutants.py asks for one
RUN = f"""
import doctest, importlib, pkgutil, sys
import fedmin
failed = tried = 0
for found in pkgutil.walk_packages(fedmin.__path__, "fedmin."):
    if "flower" in found.name:  # has an environment of its own, and its tests: make test-flower
        continue
    if found.name != ({ONLY!r} or found.name):
        continue
    module = importlib.import_module(found.name)
    outcome = doctest.testmod(module)
    failed, tried = failed + outcome.failed, tried + outcome.attempted
outcome = doctest.testmod(fedmin{".core" if ONLY else ""})
print("tried", tried + outcome.attempted, "failed", failed + outcome.failed)
sys.exit(failed > 0)
"""


def as_a_user(code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run code in a fresh process with JAX's own settings: single precision, no strictness."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FEDMIN_DEVICES"))}
    env |= {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg", **conftest.QUICKLY}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=env, cwd=folder, text=True, capture_output=True, timeout=600,
    )  # fmt: skip


def test_docstring_examples_run(tmp_path):
    done = as_a_user(RUN, tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    tried = int(re.search(r"tried (\d+)", done.stdout)[1])
    assert tried > (0 if ONLY else 100)


def blocks(name: str) -> str:
    text = (ROOT / name).read_text("utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


GUIDES = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in ("README.md", "CONTRIBUTING.md", *GUIDES) if blocks(page)]


def test_examples_in_pages_run(tmp_path):
    """All pages in one process, each from the beginning."""
    code = "\n".join(f"print({p!r}, flush=True)\nexec({blocks(p)!r}, {{}})" for p in PAGES)
    done = as_a_user(code, tmp_path)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-4000:]
    assert len(PAGES) > 6


def test_the_reference_has_every_public_name():
    """Names that are rarely needed by the full path of where they live."""
    text = (ROOT / "docs/reference.md").read_text("utf-8")
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    names = {f"fedmin.{name}" for name in public(fedmin)}
    names |= {f"{room}.{n}" for n, room in fedmin._PLACES.items() if n not in fedmin.__all__}
    assert sorted(shown) == sorted(names)
    _, found, last = text.partition("## In their rooms")
    assert found
    assert set(re.findall(r"^::: fedmin\.(\w+)\.", text, re.MULTILINE)) == set(
        re.findall(r"^::: fedmin\.(\w+)\.", last, re.MULTILINE)
    )


def test_the_site_is_built(tmp_path):
    """Strictly: a broken link or a name that is not there is an error."""
    build = ["build", "--strict", "--site-dir", str(tmp_path)]  # quiet would not be strict
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *build],
        cwd=ROOT, text=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    reference = (tmp_path / "reference/index.html").read_text("utf-8")
    assert "Minimize F(x) = sum_i p_i f_i(x) + r(x) over a federation" in reference
