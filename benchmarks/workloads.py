"""The five workloads: how large they are, and synthetic data of that shape.

Every contender (fedmin, the hand-written JAX, the BLAS loop) reads the same arrays. Rows have a
norm near one, so that no run diverges and no number becomes denormal.
"""

from dataclasses import dataclass, replace

import numpy as np

ALIGNMENT = 64  # bytes; what XLA asks of memory that it uses in place


@dataclass(frozen=True)
class Workload:
    """Sizes of one workload."""

    name: str
    title: str
    clients: int
    rows: int  # a client
    cohort: int  # clients a round
    steps: int
    batch: int
    rounds: int
    features: int = 784
    classes: int = 10
    slots: int = 0  # non-zeros a row, if sparse
    step: float = 0.1

    @property
    def total(self) -> int:
        """All rows."""
        return self.clients * self.rows

    @property
    def blocks(self) -> int:
        """Batches in a pass over a client's rows."""
        return self.rows // self.batch

    def scaled(self, scale: float) -> "Workload":
        """The same with fewer rows a client (a whole number of batches), for a quick look."""
        blocks = max(1, round(self.blocks * scale))
        return replace(self, rows=blocks * self.batch)


W1 = Workload("W1", "softmax 60,000 x 784, 20 clients", 20, 3000, 20, 5, 100, 200)
W2 = Workload("W2", "MLP 784-128-10, 10 clients", 10, 6000, 10, 1, 100, 1000)
W3 = Workload("W3", "softmax, 100 of 1,000 clients", 1000, 60, 100, 5, 20, 100)
W4 = Workload("W4", "CNN, 10 clients", 10, 6000, 10, 5, 50, 20)
W5 = Workload(
    "W5", "sparse logistic 16,000 x 150,000", 20, 800, 20, 5, 50, 20,
    features=150_000, classes=2, slots=1200, step=1.0,
)  # fmt: skip

WORKLOADS = {w.name: w for w in (W1, W2, W3, W4, W5)}
HIDDEN = 128
CHANNELS = (16, 32)
KERNEL = 5


def aligned(shape: tuple[int, ...], dtype) -> np.ndarray:
    """An empty array that JAX can use in place on every CPU device, without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return raw[first : first + size].view(dtype).reshape(shape)


def dense(w: Workload, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """x f32[rows, features] and labels i32[rows]."""
    generator = np.random.default_rng(seed)
    x = aligned((w.total, w.features), np.float32)
    generator.standard_normal(out=x, dtype=np.float32)
    x *= np.float32(w.features**-0.5)
    y = aligned((w.total,), np.int32)
    y[:] = generator.integers(0, w.classes, w.total)
    return x, y


def sparse(w: Workload, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Padded rows: features i32[rows, slots] (sorted in a row), values, and labels i32[rows]."""
    generator = np.random.default_rng(seed)
    features = aligned((w.total, w.slots), np.int32)
    for row in features:
        row[:] = generator.integers(0, w.features, w.slots, dtype=np.int32)
        row.sort()
    values = aligned((w.total, w.slots), np.float32)
    generator.standard_normal(out=values, dtype=np.float32)
    values *= np.float32(w.slots**-0.5)
    y = aligned((w.total,), np.int32)
    y[:] = generator.integers(0, 2, w.total)
    return features, values, y


def weights(shapes, seed: int = 1) -> list[np.ndarray]:
    """A normal start for tensors [out, in], zeros for vectors."""
    generator = np.random.default_rng(seed)
    return [
        generator.standard_normal(s, dtype=np.float32) * np.float32((2 / s[1]) ** 0.5)
        if len(s) > 1
        else np.zeros(s, np.float32)
        for s in shapes
    ]
