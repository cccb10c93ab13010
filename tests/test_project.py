"""The papers around the code: what they promise, cite and show is so."""

import inspect
import re
from pathlib import Path

import pytest

import cases
import fedmin
import test_common
from fedmin.data import CATALOGUE
from fedmin.data.catalogue.embedded import EMBEDDED
from fedmin.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]


def keys() -> set[str]:
    text = (ROOT / "src/fedmin/references.bib").read_text("utf-8")
    also = [name for ids in re.findall(r"ids\s*=\s*\{(.+?)\}", text) for name in ids.split(",")]
    found = re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE)
    assert len(found) == len(set(found)), "a key twice"
    return {*found, *map(str.strip, also)}


def test_every_citation_has_a_reference():
    for path in [*(ROOT / "src").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        cited = set(re.findall(r"\[([a-z]+\d{4}[a-z]*)\]", path.read_text("utf-8")))
        assert cited <= keys(), f"{path.name} cites {cited - keys()}, not in references.bib"


def test_methods_and_data_cite_known_papers():
    named = {m.citation for m in METHODS.values()}
    named |= {entry.citation for entry in [*CATALOGUE.values(), *EMBEDDED.values()]}
    assert named <= keys()


def test_every_method_cites_in_its_docstring():
    for method in METHODS.values():
        assert f"[{method.citation}]" in (inspect.getmodule(method).__doc__ or "")


def test_readme_has_every_method():
    text = (ROOT / "README.md").read_text("utf-8")
    for method in METHODS.values():
        assert f"| `{method.__name__}` |" in text


def test_changelog_has_this_version():
    assert f"## [{fedmin.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_links_between_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_decisions_are_numbered_and_short():
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{i:04}" for i in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text("utf-8")
        assert text.startswith(f"# {page.name[:4]}: ")
        assert all(f"**{word}" in text for word in ("Chosen.", "Against.", "Why.", "Cost."))
        assert len(text.split()) < 400


def test_constraints_name_versions_only():
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line), line


@pytest.fixture(scope="module")
def skeleton() -> cases.Case:
    """The method that CONTRIBUTING.md shows, and its case, as they stand there."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (case,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    names = {**vars(cases), "__name__": "contributing"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    define, _, call = case.rpartition("\nCase(")
    exec(compile(define, "CONTRIBUTING.md", "exec"), names)
    return eval(f"Case({call}".strip(), names)


def test_the_skeleton_passes_the_common_suite(skeleton):
    test_common.test_shapes_are_fixed(skeleton, {})
    test_common.test_simulator_and_loopback_agree(skeleton, {})
    test_common.test_ledger_is_the_encoded_length(skeleton, {})
    test_common.test_reaches_the_minimizer(skeleton)
    test_common.test_one_client_one_step_is_central(skeleton)
