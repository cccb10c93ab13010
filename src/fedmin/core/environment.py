"""What a run was made with: versions and devices."""

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.2.0"
SHOWN = ("jax", "jaxlib", "equinox", "numpy", "scipy")


def versions() -> dict[str, str]:
    """fedmin's version, Python's, the main libraries' and the devices that JAX has.

    >>> from fedmin.reports import versions
    >>> list(versions())[:3]
    ['fedmin', 'python', 'jax']
    """
    found = {"fedmin": __version__, "python": platform.python_version()}
    found |= {name: _version(name) for name in SHOWN}
    return found | {"devices": devices(), "platform": platform.platform(terse=True)}


def devices() -> str:
    """JAX's devices in words: "2 x cpu"."""
    import jax

    kinds = [device.platform for device in jax.devices()]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds)))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
