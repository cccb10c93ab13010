"""The papers around the code: what they promise, cite and show is so."""

import inspect
import re
import tomllib
from functools import cache
from pathlib import Path

import bibtexparser
import jax
import numpy as np
import pytest
import yaml
from bibtexparser.middlewares import SeparateCoAuthors, SplitNameParts

import cases
import fedmin
import test_channels
import test_common
from agreement import assert_same, run
from fedmin.channels import CHANNELS
from fedmin.data import CATALOGUE
from fedmin.data.catalogue.embedded import EMBEDDED
from fedmin.methods import METHODS
from fedmin.reports.page import citations
from fedmin.runs.document import Document
from fedmin.runs.registries import KINDS
from fedmin.runs.values import make

ROOT = Path(__file__).resolve().parents[1]


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BIB = ROOT / "src/fedmin/references.bib"
READ = [
    *(path for room in ("src", "experiments", "examples") for path in (ROOT / room).rglob("*.py")),
    *(path for room in ("docs", "experiments", "examples") for path in (ROOT / room).rglob("*.md")),
    *ROOT.glob("*.md"),
]


@cache
def library() -> bibtexparser.Library:
    """What a BibTeX parser finds in references.bib, authors as lists of names."""
    return bibtexparser.parse_file(BIB, append_middleware=[SeparateCoAuthors(), SplitNameParts()])


def keys() -> set[str]:
    return set(library().entries_dict)


def test_every_reference_is_read():
    """A brace that is not closed would swallow the entry after it."""
    begun = re.findall(r"^@\w+\{(.+),$", BIB.read_text("utf-8"), re.MULTILINE)
    failed = [block.error for block in library().failed_blocks]  # also: a key or a field twice
    assert failed == []
    assert [entry.key for entry in library().entries] == begun
    assert len(begun) == len(re.findall("^@", BIB.read_text("utf-8"), re.MULTILINE))


def test_every_reference_is_whole():
    for entry in library().entries:
        fields = {name: field.value for name, field in entry.fields_dict.items()}
        assert {"author", "title", "year"} <= set(fields), entry.key
        assert re.fullmatch(r"(19|20)\d\d", fields["year"]), entry.key
        assert all(name.last and name.first for name in fields["author"]), entry.key
        assert not any("@" in str(value) for value in fields.values()), entry.key


def test_every_citation_has_a_reference():
    found = set()
    for path in READ:
        text = path.read_text("utf-8")
        cited = set(re.findall(r"\[([a-z]+\d{4}[a-z]*)\]", text))
        cited |= set(re.findall(r"\bcitation = \"(.*?)\"", text))
        assert cited <= keys(), f"{path.name} cites {cited - keys()}, not in references.bib"
        found |= cited
    assert found >= {method.citation for method in METHODS.values()}


def test_what_a_report_cites_is_one_entry_each():
    for key in sorted(keys()):
        again = bibtexparser.parse_string(citations([key]))
        assert not again.failed_blocks
        assert [entry.key for entry in again.entries] == [key]


def test_methods_and_data_cite_known_papers():
    named = {m.citation for m in METHODS.values()}
    named |= {entry.citation for entry in [*CATALOGUE.values(), *EMBEDDED.values()]}
    assert named <= keys()


def test_every_method_cites_in_its_docstring():
    for method in METHODS.values():
        assert f"[{method.citation}]" in (inspect.getmodule(method).__doc__ or "")


def test_readme_and_the_page_of_methods_have_every_method():
    text = (ROOT / "README.md").read_text("utf-8")
    page = (ROOT / "docs" / "methods.md").read_text("utf-8")
    for method in METHODS.values():
        assert f"`{method.__name__}`" in text
        assert f"| `{method.__name__}` |" in page


def test_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest, *_ = re.findall(r"^## \[(.+?)\] - (.+)$", text, re.MULTILINE)
    assert newest[0] == fedmin.__version__


def test_citation_file_is_of_this_version():
    """What the Citation File Format 1.2.0 requires, and the version and day of the changelog."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cff)
    assert cff["cff-version"] == "1.2.0"
    assert cff["type"] == "software"
    assert all("name" in author or "family-names" in author for author in cff["authors"])
    assert cff["version"] == fedmin.__version__
    assert cff["license"] == PYPROJECT["project"]["license"]
    heading = f"## [{cff['version']}] - {cff['date-released'].isoformat()}"
    assert heading in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()


def test_the_wheel_has_types_and_references():
    """Hatch packs the folder as it is, but for what git ignores."""
    hatch = PYPROJECT["tool"]["hatch"]
    assert hatch["build"] == {"targets": {"wheel": {"packages": ["src/fedmin"]}}}
    version = (ROOT / hatch["version"]["path"]).read_text("utf-8")
    assert f'__version__ = "{fedmin.__version__}"' in version
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    for name in ("py.typed", "references.bib", "reports/page.css", "reports/page.js"):
        path = ROOT / "src/fedmin" / name
        assert path.is_file(), name
        assert not any(path.match(pattern) for pattern in ignored if pattern), name


def test_ci_is_make_check_on_every_python():
    steps = (ROOT / ".ci/run").read_text("utf-8").splitlines()
    assert [line for line in steps if line.startswith("make")] == [
        "make check",
        "make test-full-xla",
        "make test-thorough",
        "make test-flower",
    ]
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    named = [
        line.rpartition(" ")[2]
        for line in PYPROJECT["project"]["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    assert job["strategy"]["matrix"]["python"] == named
    make = (ROOT / "Makefile").read_text("utf-8")
    check = make.partition("\ncheck:")[2].partition("\n\n")[0]
    words = ("ruff format --check", "ruff check", "/mypy", "$(MAKE) --no-print-directory test")
    places = [check.index(word) for word in words]
    assert places == sorted(places)
    assert PYPROJECT["tool"]["mypy"]["check_untyped_defs"] is True


def test_hooks_fetch_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {"ruff-format", "ruff-check"} <= {hook["id"] for hook in hooks}


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/deploy.md"])
def test_every_claim_of_security_has_its_test(page):
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", text)
    assert len(named) >= 6
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path} has no {name}"


def test_every_promise_of_sameness_has_its_test():
    page = (ROOT / "docs/concepts.md").read_text("utf-8").partition("## The same run again")[2]
    lines = [
        line for line in page.splitlines() if line.startswith("| ") and line != "| what | test |"
    ]
    there = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    assert len(lines) == 9
    for line in lines:
        named = re.findall(r"`(test_\w+)`", line)
        assert named, line
        for name in named:
            assert f"def {name}(" in there, name


def test_the_order_of_tests_is_random_and_the_same(pytestconfig):
    assert re.search(r"--randomly-seed=\d+", PYPROJECT["tool"]["pytest"]["ini_options"]["addopts"])
    assert isinstance(pytestconfig.getoption("randomly_seed"), int)


def test_links_between_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_decisions_are_numbered_and_short():
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    numbers = [page.name[:4] for page in pages]
    assert all(map(str.isdecimal, numbers))
    assert len(set(numbers)) == len(numbers)  # there may be gaps: several were written at once
    for page in pages:
        text = page.read_text("utf-8")
        assert text.startswith(f"# {page.name[:4]}: ")
        assert all(f"**{word}" in text for word in ("Chosen.", "Against.", "Why.", "Cost."))
        assert len(text.split()) < 400


def test_constraints_name_versions_only():
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line), line


def shown(heading: str) -> tuple[str, str]:
    """The code of a section of CONTRIBUTING.md: the file to write, and its case or test."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert text.count(f"\n## {heading}\n") == 1
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    (check,) = re.findall(r"^```py\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return code, check


def test_the_method_that_is_shown_is_the_one_there_is():
    code, _ = shown("Add a method in four steps")
    file = code.partition("\n\n# from here on")[0]
    assert file.strip() == (ROOT / "src/fedmin/methods/fedavgm.py").read_text("utf-8").strip()


@pytest.fixture(scope="module")
def skeleton() -> cases.Case:
    """The method that CONTRIBUTING.md shows, and its case, as they stand there."""
    code, case = shown("Add a method in four steps")
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


@pytest.fixture(scope="module")
def channel() -> dict:
    """The channel that CONTRIBUTING.md shows, and its test, as they stand there."""
    code, check = shown("Add a channel in three steps")
    names = {**vars(test_channels), "__name__": "contributing"}
    for each in (code, check):
        exec(compile(each, "CONTRIBUTING.md", "exec"), names)
    return names


def test_the_channels_own_test_passes(channel, apart):
    (name,) = [name for name in channel if name.startswith("test_round")]
    channel[name](apart)


def test_the_channel_goes_through_the_halves(channel, apart):
    """Alone and in chains, with absent clients: both engines agree, states keep their shapes."""
    made, method = channel["Round"](0.01), fedmin.FedDANE(0.3, local_steps=2)
    plain = run(apart, method)
    for road in (made, fedmin.chain(fedmin.Clip(0.5), made), fedmin.chain(made, fedmin.TopK(2))):
        for who in (fedmin.Everyone(), fedmin.Uniform(2)):
            options = {"channel": road, "participation": who}
            both = [run(apart, method, **options),
                    run(apart, method, engine=fedmin.Loopback(), **options)]  # fmt: skip
            assert_same(*both)
            assert both[0].ledger.by_kind() == both[1].ledger.by_kind()
            for name in ("server", "clients"):
                before, after = (
                    [(a.shape, a.dtype) for a in jax.tree.leaves(getattr(result, name))]
                    for result in (plain, both[0])
                )
                assert before == after
    rounded = run(apart, method, channel=made)
    assert rounded.ledger.by_kind() == plain.ledger.by_kind()  # "bytes: as without it"
    assert not np.array_equal(rounded.solution, plain.solution)
    np.testing.assert_allclose(rounded.solution, plain.solution, atol=0.1)
    assert str(made.learns) == "each client's reply, rounded to a grid"


def test_the_channels_line_is_enough_for_files(channel, monkeypatch):
    monkeypatch.setitem(CHANNELS, "round", channel["Round"])
    document = Document('[channel]\nname = "round"\ngrid = 0.5\n')
    assert make(document, "channel", document.words["channel"], KINDS["channels"]).grid == 0.5


def test_every_test_that_the_page_on_privacy_names_is_there():
    page = (ROOT / "docs/privacy.md").read_text("utf-8")
    there = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 15
    for name in named:
        assert f"def {name}(" in there, name
