"""The simulator: a whole federation in one process, at the speed of hand-written JAX."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from fedmin.core import checks
from fedmin.core.certificate import certificate_of
from fedmin.core.federation import Federation
from fedmin.core.inference import Fit, Inference, SingularError, site_sums
from fedmin.core.ledger import Ledger
from fedmin.core.measured import measured_on
from fedmin.core.result import Result
from fedmin.core.serialize import digest
from fedmin.engines.drive import Engine, Segment, Settings, Stepper, drive, result_of
from fedmin.engines.messages import (
    certificate_purpose,
    messages_of,
    reports_of,
    statistics_purpose,
)
from fedmin.engines.round import Run
from fedmin.engines.sessions.checkpoint import Keeper, belongings
from fedmin.engines.simulator.layout import Data, lay_out
from fedmin.engines.simulator.one_round import ProgramSpec, Shapes
from fedmin.engines.simulator.program import SEGMENT, programs
from fedmin.engines.weighing import ledger_of, lines_at_the_end


@dataclass(frozen=True)
class Simulator(Engine):
    """Run all clients here, compiled; `devices` and `chunk` are chosen if not given.

    `devices` is how many of JAX's devices share the clients (a CPU has one a core); `chunk` is how
    many clients a device computes together (vmap), 1 meaning one after the other.

    >>> import fedmin
    >>> fedmin.Simulator(chunk=8)
    Simulator(chunk=8, devices=None)
    """

    chunk: int | None = None
    devices: int | None = None

    def __post_init__(self):
        for name in ("chunk", "devices"):
            if getattr(self, name) is not None:
                checks.at_least(name, getattr(self, name), 1)
        if self.devices is not None and self.devices > jax.device_count():
            raise ValueError(
                f"devices must be at most {jax.device_count()}, what JAX has, got {self.devices}; "
                f"FEDMIN_DEVICES sets how many there are, before fedmin is imported"
            )

    def run(self, run: Run, federation: Federation, settings: Settings) -> Result:
        """Run and return the result."""
        # what is compiled does not depend on them
        bare = replace(run, certify=False, told=(), statistics=False)
        spec, shapes, data, ledger = self.prepare(bare, federation)
        seed, every = settings.seed, settings.every
        key = jax.random.key(seed)
        stepper = Compiled(spec, shapes, bare, data, key, every, settings.rounds)
        keeper = None
        if settings.checkpoint is not None:
            roster = federation.roster(run.participation.everyone)
            belongs = belongings(
                run, federation, roster, seed, every, engine="simulator", chunk=spec.chunk,
                devices=f"{spec.devices} x {jax.default_backend()}",
                rows=digest([federation.pool, federation.sizes]),
            )  # fmt: skip
            keeper = Keeper(settings.checkpoint, belongs, every)
        driven = drive(
            stepper, ledger, federation.names, title=type(run.method).__name__,
            settings=settings, keeper=keeper,
        )  # fmt: skip
        book, certified = driven.books[0], run.certify and driven.books[0].status != "diverged"
        if certified:  # what it would take if the rows were not here
            look = certificate_purpose(run, federation.roster(run.participation.everyone))
            book.ledger.certificate = lines_at_the_end(look, federation.num_clients)
        inference = _inferred(run, federation, stepper.state.server, book)
        result = result_of(
            run, book, stepper.state, federation.num_clients, seed=seed,
            compile_seconds=driven.compile_seconds, run_seconds=driven.run_seconds,
            inference=inference,
        )  # fmt: skip
        if not certified:
            return result
        measured = measured_on(result.problem, federation, result.solution)
        return replace(result, certificate=certificate_of(result, measured))

    def prepare(
        self, run: Run, federation: Federation, batched: bool = False
    ) -> tuple[ProgramSpec, Shapes, Data, Ledger]:
        """What to compile, the data on the devices, and an empty ledger."""
        roster = federation.roster(run.participation.everyone)
        population = roster.clients
        devices = min(self.devices or jax.device_count(), population)
        cohort = run.participation.most(population)
        on_cpu = jax.default_backend() == "cpu"
        chunk = min(self.chunk or (1 if on_cpu else 64), -(-cohort // devices))
        messages = messages_of(run, roster)
        info, names, _ = reports_of(run, roster, federation.server_rows)
        forms, server = messages.training.forms, messages.states.server
        model = jax.eval_shape(run.method.solution, server)
        shapes = Shapes(forms, messages.evaluation.forms, model, jax.eval_shape(lambda: info))
        memories = [form.memory for form in forms]
        owned = bool(jax.tree.leaves((messages.states.client, memories)))
        spec = ProgramSpec(devices, chunk, names, owned, batched)
        data = lay_out(federation, roster, devices)
        return spec, shapes, data, ledger_of(messages, population)


def _inferred(run: Run, federation: Federation, server: Any, book: Any) -> Inference | None:
    """The statistics of the last model, by the sums that every client would send."""
    if not run.statistics or book.status == "diverged":
        return None
    clients = range(federation.num_clients)
    fit = Fit(run.problem, run.method.solution(server.method), len(clients), federation.by_rows)
    steps = Fit.steps(run.problem)
    try:
        for k in range(steps + 1):
            fit.took([
                site_sums(run.problem, fit.x, federation.client(i), k == steps) for i in clients
            ])  # fmt: skip
    except SingularError as error:
        warnings.warn(f"no statistics: {error}", RuntimeWarning, stacklevel=2)
        return None
    book.ledger.certificate += lines_at_the_end(statistics_purpose(run), len(clients))
    return fit.found


class Compiled(Stepper):
    """Segments of many rounds, each one call of a compiled loop; one run, or many at once."""

    longest = SEGMENT

    def __init__(
        self, spec: ProgramSpec, shapes: Shapes, run: Run, data: Data, key: Any, every: int,
        rounds: int,
    ):  # fmt: skip
        self.spec, self.shapes, self.names, self.run = spec, shapes, spec.names, run
        self.data, self.key, self.every, self.rounds = data, key, every, rounds

    def begin(self) -> list[Any]:
        start, self.segment = programs(self.spec, self.shapes, self.run, self.data)
        self.state, values = start(self.run, self.data, self.key)
        self._call(0, 0)  # compiles
        return list(values) if self.spec.batched else [values]

    def advance(self, done: int, length: int) -> list[Segment]:
        log = self._call(done, length)
        if not self.spec.batched:
            return [log]
        return [jax.tree.map(lambda a, i=i: a[i], log) for i in range(len(log.ran))]

    def _call(self, done: int, length: int) -> Segment:
        numbers = [np.int32(v) for v in (done, length, self.every, self.rounds)]
        self.state, log = self.segment(self.run, self.data, self.state, self.key, *numbers)
        return jax.device_get(jax.block_until_ready(log))
