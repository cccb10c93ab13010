"""Settings of every test, and worlds whose minimiser is known by construction (see known.py)."""

import gc
import os
import tempfile
from pathlib import Path

# three devices on any machine, so that clients over devices and an idle device can be tested
os.environ.setdefault("FEDMIN_DEVICES", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
_public = Path(__file__).resolve().parents[2] / "shared" / "data"
if _public.is_dir():
    os.environ.setdefault("FEDMIN_DATA", str(_public))

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

import known  # noqa: E402

# Compiling is most of what tests do, and takes half the time without XLA's newer emitters and most
# of its optimizations. With FEDMIN_TEST_XLA=full it compiles as a user's does: `make test-full-xla`
XLA = os.environ.get("FEDMIN_TEST_XLA", "quick")
if XLA not in ("quick", "full"):
    raise pytest.UsageError(f'FEDMIN_TEST_XLA must be "quick" or "full", got {XLA!r}')

# XLA reads its flags once, as it starts. A small program is not cut into parts to compile at a time
_flags = os.environ.get("XLA_FLAGS")
_faster = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
_quick = f"{_flags or ''} {_faster}"
if XLA == "quick":
    os.environ["XLA_FLAGS"] = _quick
    jax.config.update("jax_disable_most_optimizations", True)
    # two runs of one form compile the same program twice; a folder of this process's own, since
    # another that is killed, or that writes at the same time, would leave half a file
    _compiled = tempfile.TemporaryDirectory(prefix="fedmin-compiled-")
    jax.config.update("jax_compilation_cache_dir", _compiled.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.devices()
os.environ.pop("XLA_FLAGS", None)
if _flags is not None:
    os.environ["XLA_FLAGS"] = _flags

# for the environment of processes that tests start, whose programs too are run for a moment only
QUICKLY = {"XLA_FLAGS": _quick, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if XLA == "quick" else {}

# tracing makes many small objects that are kept: looking for garbage among them rarely finds any
gc.set_threshold(100_000, 20, 100)

# compiling is slow and shared machines are uneven: a time limit would test the machine
settings.register_profile("fedmin", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("fedmin")


def pytest_report_header():
    return f"FEDMIN_TEST_XLA={XLA}"


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers of a test's own: which they are does not depend on the tests before it."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def apart() -> known.World:
    """Ridge regression whose clients want different things; solved by numpy.linalg."""
    return known.apart()


@pytest.fixture(scope="session")
def shared() -> known.World:
    """Noise-free least squares: one vector is best for every row of every client."""
    return known.shared()


@pytest.fixture(scope="session")
def logistic() -> known.World:
    """Logistic regression, solved by SciPy's Newton method."""
    return known.logistic()


# what takes a minute or more begins first: at the end all workers would wait for one of them
LONG = (
    "test_killed_at_any_moment_it_ends_the_same",
    "test_claims_of_a_paper",
    "test_examples_in_pages_run",
    "test_docstring_examples_run",
    "test_scikit_learns_own_checks",
)
BY_CASE = ("test_common.py", "test_model.py", "test_reproduce.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The long ones to the front, after all others were put into their random order."""
    items.sort(key=lambda item: getattr(item, "originalname", None) not in LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With -n: tests that use one compiled program stay in one process, which compiles it once.

    That is, all tests of a file; in test_common.py and test_model.py all tests of a case. Of a
    paper's claims each paper goes by itself, and so do the long ones. They begin in the order they
    were collected in: by default groups of one test, as the longest are, would come last.
    """
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class ByCase(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, rest = nodeid.partition("::")
            name, _, parameters = rest.partition("[")
            if file.endswith(BY_CASE) and parameters:
                return f"{file}::{parameters.rstrip(']').partition('-')[0]}"
            return f"{file}::{name}" if name in LONG else file

    return ByCase(config, log)
