"""The workloads through fedmin's front door: `fedmin.minimize`, nothing else."""

import numpy as np

from benchmarks.workloads import CHANNELS, HIDDEN, KERNEL, WORKLOADS, Workload, dense, sparse


def _federation(w: Workload):
    """The federation; the arrays it was made from are gone when this returns."""
    import scipy.sparse

    import fedmin

    if w.slots:
        features, values, y = sparse(w)
        edges = np.arange(w.total + 1, dtype=np.int32) * w.slots
        x = scipy.sparse.csr_matrix(
            (values.ravel(), features.ravel(), edges), shape=(w.total, w.features)
        )
        del features, values  # scipy has made copies
    else:
        x, y = dense(w)
    parts = [range(i * w.rows, (i + 1) * w.rows) for i in range(w.clients)]
    return fedmin.Federation.from_parts(x, y, parts, classes=w.classes)


def _problem(w: Workload):
    import fedmin

    return {
        "W1": lambda: fedmin.Softmax(w.features, w.classes),
        "W2": lambda: fedmin.MLP(w.features, w.classes, hidden=(HIDDEN,)),
        "W3": lambda: fedmin.Softmax(w.features, w.classes),
        "W4": lambda: fedmin.CNN((28, 28, 1), w.classes, CHANNELS, KERNEL, (HIDDEN,)),
        "W5": lambda: fedmin.Logistic(w.features),
    }[w.name]()


def prepared(w: Workload):
    """Problem, federation and method of a workload."""
    import fedmin

    method = fedmin.FedAvg(step=w.step, local_steps=w.steps, batches=fedmin.Blocks(w.batch))
    return _problem(w), _federation(w), method


def prepare(name: str, scale: float = 1.0):
    """A function that runs so many rounds and returns fedmin's Result; and the data's bytes."""
    import jax
    import jax.numpy as jnp

    import fedmin

    w = WORKLOADS[name].scaled(scale)
    problem, federation, method = prepared(w)
    everyone = w.cohort == w.clients
    participation = fedmin.Everyone() if everyone else fedmin.Uniform(w.cohort)
    # the floors measure nothing; a pass over all rows would be counted against us
    cheap = [fedmin.Measure("size", lambda problem, x: jnp.linalg.norm(x))]

    def advance(rounds):
        result = fedmin.minimize(
            problem, federation, method, rounds=rounds, every=rounds, progress=False,
            participation=participation, record=cheap,
        )  # fmt: skip
        assert result.rounds == rounds, result
        return result

    return advance, sum(np.asarray(a).nbytes for a in jax.tree.leaves(federation.pool))


def run(name: str, rounds: int, *, scale: float = 1.0, repeats: int = 3) -> dict:
    """Rounds a second of fedmin's FedAvg on one workload."""
    advance, size = prepare(name, scale)
    results = [advance(rounds) for _ in range(repeats)]
    times = [result.run_seconds for result in results]
    return {
        "rounds_per_second": rounds / min(times),
        "compile_seconds": results[0].compile_seconds,
        "seconds": times,
        "data_bytes": size,
    }
