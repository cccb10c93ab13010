"""One JAX device a core, so that a simulated federation uses them all.

XLA runs a compiled loop on one core of a CPU device; clients are independent, so the simulator
spreads them over several CPU devices. Their number must be set before JAX starts, hence at import.
`FEDMIN_DEVICES=1` (or any number) overrides it; a number chosen by the user through JAX's own
settings, and a JAX that has already started, are left alone.
"""

import os

import jax

MOST = 16  # more cores than this rarely help: the clients of a round are few and summed every round


def wanted() -> int:
    """How many CPU devices to ask for: `FEDMIN_DEVICES`, else the cores this process may use."""
    asked = os.environ.get("FEDMIN_DEVICES")
    if asked is not None:
        if not asked.isdigit() or int(asked) < 1:
            raise ValueError(f"FEDMIN_DEVICES must be a whole number of at least 1, got {asked!r}")
        return int(asked)
    cores = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return min(len(cores), MOST)


def spread() -> None:
    """Ask JAX for one CPU device a core, unless the user has chosen or JAX is running."""
    flagged = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    set_in_jax = jax.config.jax_num_cpu_devices > 0  # type: ignore[attr-defined]
    if flagged or set_in_jax:
        return
    try:
        jax.config.update("jax_num_cpu_devices", wanted())
    except RuntimeError:  # JAX has started: the simulator uses the devices there are
        return
