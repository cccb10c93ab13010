"""Batches of which a gradient is told only clipped a row and with noise; and rows that are sealed.

    rows drawn   each of the client's n rows by itself with chance q (Poisson sampling)
    told         (sum over them of v_j min(1, C / |v_j|) + N(0, (multiplier C)^2)) / (q n)

where v_j is what row j adds: its gradient, or the values and gradients of several functions in one
vector. A row changes the sum by C at most. `Problem.grad`, `step` and `linearize` are the one place
through which gradients pass; given a `PrivateBatch` they tell this and nothing else of the rows.
A `Withheld` that is another kind (core/choices.py) keeps its gradients and tells choices.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import get_opaque_trace_state
from jax.flatten_util import ravel_pytree

from fedmin.core.rows import Rows, Shard

CHUNK = 64  # rows whose gradients are there at a time


class PrivacyError(ValueError):
    """A method does with private rows what noise does not cover."""


class Watch:
    """Counts what a client's part tells of its rows, while it is traced with sealed rows."""

    def __init__(self) -> None:
        self.times = 0
        self.turns = [1]  # of the loops around what is traced
        self.level: Any = None
        self.told: set[int] = set()
        self.withheld: set[int] = set()  # batches whose gradient was taken without noise
        self.kept: list[Any] = []  # so that no two batches have one id

    def count(self, token: Any) -> None:
        """A batch tells its gradient: once, since its noise is drawn once."""
        if id(token) in self.told:
            raise PrivacyError(
                "takes two gradients, or two choices, of one batch, which would have the same "
                "noise; PrivateRows and PrivateChoices tell one"
            )
        if len(self.turns) == 1 and get_opaque_trace_state() != self.level:
            raise PrivacyError(
                "takes gradients in a loop of its own, of which nobody knows how long it is; "
                "FedAvg and others with local_steps count theirs"
            )
        self.told.add(id(token))
        self.kept.append(token)
        turns = 1
        for each in self.turns:
            turns *= each
        self.times += turns

    def withhold(self, token: Any) -> None:
        """A batch gives its gradient without noise: once, for one choice, whose noise covers it."""
        if id(token) in self.withheld:
            raise PrivacyError(
                "takes two gradients of one batch for one choice; PrivateChoices covers one"
            )
        self.withheld.add(id(token))
        self.kept.append(token)

    def check(self) -> None:
        """Refuse gradients without noise by which nothing was chosen."""
        if self.withheld - self.told:
            raise PrivacyError(
                "sends what it makes of gradients, and PrivateChoices has noise on choices by them "
                "only, as FedFW, FedFWPlus and FedFWSto choose vertices, and FedIterHT and "
                "DistributedIHT entries; give one of these, or batches=PrivateRows(...), whose "
                "gradients have noise"
            )


_watch: list[Watch] = []


@contextmanager
def watching() -> Iterator[Watch]:
    """Count what is told while something is traced."""
    _watch.append(Watch())
    try:
        yield _watch[-1]
        _watch[-1].check()
    finally:
        _watch.pop()


def tells(token: Any) -> None:
    """A batch tells something, with noise."""
    if _watch:
        _watch[-1].count(token)


def withholds(token: Any) -> None:
    """A batch gives its gradient to a choice."""
    if _watch:
        _watch[-1].withhold(token)


def watching_one() -> Any:
    """What tells a batch from others while one watches; else nothing."""
    return object() if _watch else None


def at_this_level() -> None:
    """Say that what is traced from here on runs once, unless it is in `repeated`."""
    if _watch:
        _watch[-1].level = get_opaque_trace_state()


@contextmanager
def repeated(times: int) -> Iterator[None]:
    """What is traced in here runs up to so many times."""
    if _watch:
        _watch[-1].turns.append(times)
    try:
        yield
    finally:
        if _watch:
            _watch[-1].turns.pop()


def _refuse(what: str) -> NoReturn:
    raise PrivacyError(
        f"uses {what} of private rows; PrivateRows covers gradients on its own batches only, as "
        f"FedSGD, FedAvg, FedProx, Scaffold, FedHT or SSCA take them"
    )


def refuse_private(what: str, rows: Any) -> None:
    """Refuse what noise does not cover, of a private batch; other rows may be used so."""
    if isinstance(rows, Withheld):
        _refuse(what)


class Sealed(eqx.Module):
    """A client's rows, of which nothing but their number can be read."""

    shard: Shard

    @property
    def size(self) -> Array:
        """How many there are: the roster says it to all."""
        return self.shard.size

    @property
    def capacity(self) -> int:
        """No client has more rows than this."""
        return self.shard.capacity

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"'{name}'")


class Withheld(eqx.Module):
    """Rows of a client that cannot be read; a subclass says what is told of them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"'{name}'")

    @abstractmethod
    def gradient(self, problem: Any, x: Array) -> Array:
        """The mean gradient of the losses, as far as it is told, without the regularizer's."""

    @abstractmethod
    def linearized(self, problem: Any, x: Array) -> tuple[Array, list[list[Array]]]:
        """`Problem.linearize`, as far as it is told."""


class PrivateBatch(Withheld):
    """Rows drawn each with chance `rate`, of which one clipped and noisy mean is told."""

    rows: Any  # a Shard, sealed or not
    key: Array
    rate: Array
    clip: Array  # C
    multiplier: Array
    token: Any = eqx.field(default=None, static=True)  # which batch it is, while one watches

    def gradient(self, problem: Any, x: Array) -> Array:
        return self.mean(of_a_row(problem, x))

    def linearized(self, problem: Any, x: Array) -> tuple[Array, list[list[Array]]]:
        """`Problem.linearize`: the constraints' values and all gradients, clipped together.

        The value of the objective is not told: it is not a number.
        """

        def part(row: Rows) -> Any:
            sums, slopes, _ = problem.sums(x, row)
            return problem.limits_of(sums), slopes

        limits, slopes = self.mean(part)
        hidden = jnp.full(problem.num_sums - problem.num_constraints, jnp.nan, x.dtype)
        return jnp.concatenate([hidden, limits]), slopes

    def mean(self, part: Callable[[Rows], Any]) -> Any:
        """The sum of part(row) over the batch, clipped a row and with noise, over q n."""
        tells(self.token)
        shard = opened(self.rows)
        draws, noise = jax.random.split(self.key)
        total = self.clipped_sum(shard, drawn(draws, self.rate, shard), part)
        flat, back = ravel_pytree(total)
        deviation = (self.multiplier * self.clip).astype(flat.dtype)
        flat = flat + deviation * jax.random.normal(noise, flat.shape, flat.dtype)
        expected = self.rate.astype(flat.dtype) * shard.size.astype(flat.dtype)
        return back(flat / expected)

    def clipped_sum(self, shard: Shard, chosen: Array, part: Callable[[Rows], Any]) -> Any:
        """The sum over the chosen rows of part(row), each of length C at most."""
        return clipped_sum(shard, chosen, part, self.clip, lambda v: jnp.sqrt(jnp.sum(v * v)))


def of_a_row(problem: Any, x: Array) -> Callable[[Rows], Array]:
    """A row's gradient at x."""
    return lambda row: jax.grad(lambda u: problem.totals(u, row)[0])(x)


def opened(rows: Any) -> Shard:
    """The rows behind a seal: for what noise covers only."""
    return rows.shard if isinstance(rows, Sealed) else rows


def clipped_sum(
    shard: Shard,
    chosen: Array,
    part: Callable[[Rows], Any],
    bound: Array,
    norm: Callable[[Array], Array],
) -> Any:
    """The sum over the chosen rows of part(row), each scaled to a norm of at most `bound`."""
    size = -(-shard.capacity // CHUNK) * CHUNK
    places = jnp.nonzero(chosen, size=size, fill_value=0)[0].astype(jnp.int32)
    count = jnp.sum(chosen, dtype=jnp.int32)
    like = jax.eval_shape(lambda: part(shard.take(places[:1])))
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
    flat, back = ravel_pytree(zeros)

    def one(i: Array) -> Array:
        v = ravel_pytree(part(shard.take(i[None])))[0]
        length, clip = norm(v), bound.astype(v.dtype)
        # not finite: nothing is told of such a row
        v = jnp.where(jnp.isfinite(length), v, 0)
        return v * jnp.where(length > clip, clip / length, jnp.ones_like(length))

    def add(j: Array, total: Array) -> Array:
        mine = j * CHUNK + jnp.arange(CHUNK, dtype=jnp.int32)
        each = jax.vmap(one)(places[mine])
        return total + jnp.sum(jnp.where((mine < count)[:, None], each, 0), axis=0)

    return back(lax.fori_loop(0, -(-count // CHUNK), add, flat))


def drawn(key: Array, rate: Array, shard: Shard) -> Array:
    """bool[capacity]: which of the client's rows are in a batch, each with chance `rate`."""
    u = jax.random.uniform(key, (shard.capacity,), rate.dtype)
    return (u < rate) & (jnp.arange(shard.capacity, dtype=jnp.int32) < shard.size)
