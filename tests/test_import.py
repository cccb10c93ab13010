"""What `import fedmin` gives, and what it leaves alone: public names, modules, the process."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedmin

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("package", [fedmin, fedmin.data], ids=lambda package: package.__name__)
def test_no_public_name_hides_a_module(package):
    for name in package.__all__:
        spec = importlib.util.find_spec(f"{package.__name__}.{name}")
        assert spec is None or getattr(package, name) is fedmin.data, name


def test_data_shows_what_users_call():
    assert dir(fedmin.data) == sorted(fedmin.data.__all__)
    assert not {"catalogue", "formats", "splits", "synthetic", "table"} & set(dir(fedmin.data))
    assert all(hasattr(fedmin.data, name) for name in fedmin.data.__all__)


def test_names_that_were_changed_still_work():
    assert fedmin.data.Joined is fedmin.data.JoinedParties


def fresh(code: str, **settings: str) -> dict:
    """What a fresh process finds: the words of the JSON that it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "FEDMIN_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**kept, "PYTHONPATH": str(ROOT / "src"), **settings},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# each process tells what it had before and after the import of fedmin
LOOK = """
import json, logging, os, random, signal, threading, warnings
import equinox, jax, numpy, scipy.optimize, scipy.sparse  # they have warnings of their own
def look():
    from jax._src import config
    from jax._src.xla_bridge import backends_are_initialized
    settings = dict(config.config.values)
    return dict(
        settings={{name: repr(value) for name, value in settings.items()}},
        started=backends_are_initialized(),
        signals=[repr(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
        environment=dict(os.environ), filters=len(warnings.filters),
        handlers=len(logging.getLogger().handlers), threads=threading.active_count(),
        chance=[random.random.__self__.getstate()[1][-1], int(numpy.random.get_state()[2])],
    )
{before}
first = look()
import fedmin
second = look()
{after}
second["devices"] = jax.device_count("cpu")
print(json.dumps([first, second]))
"""


def changed(before: str = "", after: str = "", **settings: str) -> dict:
    """What the import of fedmin changed, and the number of devices."""
    code = LOOK.format(before=before, after=after)
    first, second = fresh(code, **settings)
    devices = second.pop("devices")
    names = [n for n, v in second["settings"].items() if first["settings"].get(n) != v]
    rest = [part for part in first if part != "settings" and first[part] != second[part]]
    return {"settings": names, "rest": rest, "devices": devices}


def test_only_the_number_of_devices_is_set_and_jax_is_not_started():
    found = changed(FEDMIN_DEVICES="3", after="assert not second['started']")
    assert found == {"settings": ["jax_num_cpu_devices"], "rest": [], "devices": 3}


def test_a_jax_that_has_started_is_left_alone():
    found = changed(before="jax.devices()", FEDMIN_DEVICES="3")
    # a JAX that has started starts threads of its own when it likes, on a slow machine later
    found["rest"] = [what for what in found["rest"] if what != "threads"]
    assert found == {"settings": [], "rest": [], "devices": 1}


@pytest.mark.parametrize(
    ("before", "settings"),
    [
        ("jax.config.update('jax_num_cpu_devices', 2)", {}),
        ("", {"JAX_NUM_CPU_DEVICES": "2"}),
        ("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}),
    ],
    ids=["in Python", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS"],
)
def test_a_number_that_the_user_chose_is_left_alone(before, settings):
    found = changed(before=before, FEDMIN_DEVICES="3", **settings)
    assert found == {"settings": [], "rest": [], "devices": 2}
