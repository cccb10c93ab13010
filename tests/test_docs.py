"""Every public name explains itself by an example that runs."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedmin

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = {  # abstract, or only ever made by the library: their words are enough
    "Aggregate", "Batches", "Channel", "ClientError", "Domain", "Exchange", "Method", "Metric",
    "Now", "Participation", "Payload", "Problem", "Shard", "data",
}  # fmt: skip


def public(module) -> list[str]:
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]


@pytest.mark.parametrize("name", public(fedmin))
def test_public_names_are_documented(name):
    doc = inspect.getdoc(getattr(fedmin, name)) or ""
    assert len(doc.split()) >= 3, f"fedmin.{name} has no docstring"
    assert ">>>" in doc or name in CONTRACTS, f"fedmin.{name} has no example"


def test_contracts_are_public_names():
    assert set(fedmin.__all__) >= CONTRACTS


def test_all_is_complete():
    named = {n for n in vars(fedmin) if not n.startswith("_")}
    values = {n for n in named if not inspect.ismodule(getattr(fedmin, n))}
    assert values == set(public(fedmin))


@pytest.mark.parametrize(
    "name", [n for n in fedmin.data.__all__ if callable(getattr(fedmin.data, n))]
)
def test_data_names_are_documented(name):
    assert len((inspect.getdoc(getattr(fedmin.data, name)) or "").split()) >= 3


RUN = """
import doctest, importlib, pkgutil, sys
import fedmin
failed = tried = 0
for found in pkgutil.walk_packages(fedmin.__path__, "fedmin."):
    module = importlib.import_module(found.name)
    outcome = doctest.testmod(module)
    failed, tried = failed + outcome.failed, tried + outcome.attempted
outcome = doctest.testmod(fedmin)
print("tried", tried + outcome.attempted, "failed", failed + outcome.failed)
sys.exit(failed > 0)
"""


def as_a_user(code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run code in a fresh process with JAX's own settings: single precision, no strictness."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FEDMIN_DEVICES"))}
    env |= {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=env, cwd=folder, text=True, capture_output=True, timeout=600,
    )  # fmt: skip


def test_docstring_examples_run(tmp_path):
    done = as_a_user(RUN, tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    tried = int(re.search(r"tried (\d+)", done.stdout)[1])
    assert tried > 100


def blocks(name: str) -> str:
    path = ROOT / name
    text = path.read_text("utf-8") if path.exists() else ""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_examples_in_pages_run(name, tmp_path):
    code = blocks(name)
    if not code:
        pytest.skip(f"{name} has no python block")
    done = as_a_user(code, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
