"""Chain: stages behind each other; the client's halves in order, the server's in reverse."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.channels.plain import Plain
from fedmin.core import checks
from fedmin.core.channel import Channel, Cohort, Learns
from fedmin.core.method import Now
from fedmin.core.protocol import Protocol


class Chain(Channel):
    """Stages behind each other, as `fedmin.chain` makes them.

    >>> import fedmin
    >>> fedmin.Chain((fedmin.Clip(1.0), fedmin.TopK(10))).learns.how
    'shortened to a bound, its largest entries only'
    """

    stages: tuple[Channel, ...]

    def __check_init__(self):
        checks.is_a("stages", self.stages, tuple, "(Clip(1.0), TopK(10))")
        checks.at_least("stages", len(self.stages), 1)
        for stage in self.stages:
            checks.is_a("stages", stage, Channel, "Clip(1.0)")
        for stage in self.stages[:-1]:
            if stage.hides:  # what comes after it would see what it hides
                raise ValueError(f"{stage} must be the last stage of a chain: its sum is hidden")
            if stage.remembers:  # what comes after it would change what both ends add up
                raise ValueError(
                    f"{stage} must be the last stage of a chain: its two ends must add up the same"
                )
        if self.noises and getattr(self.stages[-1], "bound", 0) is None:
            raise ValueError(
                f"{self.stages[-1]} agrees on a bound, a maximum without noise; give it a bound"
            )

    @property
    def delays(self) -> bool:  # type: ignore[override]
        return any(stage.delays for stage in self.stages)

    @property
    def shortens(self) -> bool:  # type: ignore[override]
        return any(stage.shortens for stage in self.stages)

    @property
    def lossless(self) -> bool:  # type: ignore[override]
        return all(stage.lossless for stage in self.stages)

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return any(stage.goes_on for stage in self.stages)

    def weighing(self, cohort: Cohort) -> Array:
        fixed = [stage for stage in self.stages if stage.goes_on or stage.remembers]
        return (fixed or self.stages)[0].weighing(cohort)

    def longest(self, entering: float | None) -> float | None:
        for stage in self.stages:
            entering = stage.longest(entering)
        return entering

    def _along(self, up: Any) -> list[Any]:
        """The shapes that enter each stage."""
        now = jax.eval_shape(lambda: Now(jnp.int32(0), *[jax.random.key(0)] * 2))
        shapes = [up]
        for stage in self.stages[:-1]:
            memory = jax.eval_shape(stage.init, shapes[-1])
            shapes.append(jax.eval_shape(stage.encode, shapes[-1], memory, now)[0])
        return shapes

    def init(self, up: Any) -> Any:
        return tuple(s.init(shape) for s, shape in zip(self.stages, self._along(up), strict=True))

    def init_server(self, up: Any) -> Any:
        along = self._along(up)
        return tuple(s.init_server(shape) for s, shape in zip(self.stages, along, strict=True))

    def encode(self, up: Any, memory: Any, now: Now) -> tuple[Any, Any]:
        kept = []
        for k, (stage, own) in enumerate(zip(self.stages, memory, strict=True)):
            up, own = stage.encode(up, own, _of_stage(now, k))
            kept.append(own)
        return up, tuple(kept)

    def weigh(self, wire: Any, share: Any) -> Any:
        return self.stages[-1].weigh(wire, share)

    def weigh_as(self, wire: Any, share: Any, told: Any) -> Any:
        return self.stages[-1].weigh_as(wire, share, told)

    def tells(self, state: Any) -> dict[str, Any]:
        return self.stages[-1].tells(state[-1])

    def waits(self, told: Any) -> Any:
        return self.stages[-1].waits(told)

    def report(self, combined: Any) -> dict[str, Any]:
        return self.stages[-1].report(combined)

    def concerns(self, info: Any) -> str:
        return "; ".join(filter(None, (stage.concerns(info) for stage in self.stages)))

    @property
    def noises(self) -> bool:  # type: ignore[override]
        return any(stage.noises for stage in self.stages)

    @property
    def signs(self) -> bool:  # type: ignore[override]
        return self.stages[-1].signs

    @property
    def fewest(self) -> int:  # type: ignore[override]
        return max(stage.fewest for stage in self.stages)

    @property
    def blind(self) -> bool:  # type: ignore[override]
        return self.stages[-1].blind

    def combine(self, wires: Any) -> Any:
        return self.stages[-1].combine(wires)

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        kept = []
        for k in reversed(range(len(self.stages))):
            combined, own = self.stages[k].decode(combined, state[k], cohort, _of_stage(now, k))
            kept.append(own)
        return combined, tuple(reversed(kept))

    def weight_in(self, combined: Any, dtype: Any) -> Any:
        return self.stages[-1].weight_in(combined, dtype)

    def beside(self, sent: Any) -> str:
        return self.stages[-1].beside(sent)

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        return self.stages[-1].weighs

    @property
    def hides(self) -> bool:  # type: ignore[override]
        return self.stages[-1].hides

    def protocol(self, sent: Any) -> Protocol:
        return self.stages[-1].protocol(sent)

    def for_evaluation(self) -> Channel | None:
        found = [stage.for_evaluation() for stage in self.stages]
        used = [stage for stage in found if stage is not None]
        return chain(*used) if used else None

    @property
    def learns(self) -> Learns:
        hows = [stage.learns.how for stage in self.stages if not stage.lossless]
        noisy = any(stage.learns.noisy for stage in self.stages)
        each = all(stage.learns.each for stage in self.stages)
        least = max(stage.learns.least for stage in self.stages)
        how = ", ".join(hows) or self.stages[-1].learns.how
        return Learns(each, least, noisy, how, self.blind)

    def refuses(self, trip: Any) -> str:
        reasons = (stage.refuses(trip) for stage in self.stages)
        return next((words for words in reasons if words), "")


def _of_stage(now: Now, k: int) -> Now:
    """Each stage draws numbers of its own."""
    return Now(now.round, *(jax.random.fold_in(key, k) for key in (now.key, now.secret)))


def chain(*stages: Channel) -> Channel:
    """A channel of several stages: `chain(Clip(1.0), TopK(100))` clips, then cuts.

    >>> import fedmin
    >>> fedmin.chain(fedmin.Clip(1.0), fedmin.chain(fedmin.TopK(2))).stages
    (Clip(norm=1.0), TopK(k=2))
    >>> fedmin.chain()
    Plain()
    """
    flat = [s for stage in stages for s in (stage.stages if isinstance(stage, Chain) else [stage])]
    flat = [stage for stage in flat if not isinstance(stage, Plain)]
    if not flat:
        return Plain()
    return Chain(tuple(flat)) if len(flat) > 1 else flat[0]
