"""Methods of local steps that take step="auto": their trips with the guard of server/guard.py.

round 0     clients send f_i and l_i, their largest curvature at the start: eta = 1/mean l_i
later       down what the method sends, eta and its scale, and whether the last model is undone;
            up what the method sends, and f_i
bytes       down 3 numbers more, up 4
            where some are absent, down d more, the kept model, and up f_i there: two models are
            then compared by the same clients

A method has its own server state, client states and trip as ever; with a number or a schedule as
step they are used as they are. With "auto" the functions of the trip are those of the same method
with the number of the round in the place of the step (`at_pace`).
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps, curvature
from fedmin.core.method import Exchange, Reported, starting_point
from fedmin.core.schedule import Auto
from fedmin.server import guard
from fedmin.server.guard import Watch


class Client(NamedTuple):
    """What a client remembers under a guard."""

    own: Any  # what the method lets it remember
    before: Any  # that before the last round
    steep: Array  # l_i


class Guarded(LocalSteps):
    """Local steps whose size may be "auto". A subclass writes `start`, `memory`, `broadcast`,
    `client`, `server` and `model` as if the step were a number."""

    guarded: ClassVar[bool] = True
    broadcast: ClassVar[Any]
    client: ClassVar[Any]
    server: ClassVar[Any]

    # what a subclass has

    def start(self, problem, roster, key: Array) -> Any:
        """The server's state before round 0."""
        raise NotImplementedError

    def memory(self, problem, roster, rows, key: Array) -> Any:
        """What a client remembers before round 0."""
        return ()

    def model(self, own: Any) -> Array:
        """The model in the server's state."""
        return getattr(own, "x", own)

    def trip(self) -> Exchange:
        """The one trip of a round."""
        return Exchange(self.broadcast, self.client, self.server)

    def at_pace(self, eta: Array, scale: Array) -> "Guarded":
        """The same method with numbers: 1/L, and the scale of what is allowed."""
        return self.having(step=eta * scale)

    def having(self, **numbers: Array) -> Any:
        """The same method with these numbers, unchecked: they are known only as a program runs."""
        fields = list(numbers)
        where = lambda method: [getattr(method, name) for name in fields]
        return eqx.tree_at(where, self, [numbers[name] for name in fields])

    def shortened(self, own: Any, x: Array, by: Any) -> Any:
        """The state after a move from x that was `by` times as long."""
        short = x + by * (self.model(own) - x)
        return own._replace(x=short) if hasattr(own, "x") else short

    # what engines call

    @property
    def _auto(self) -> bool:
        return isinstance(self.step, Auto)

    def init_server(self, problem, roster, key: Array) -> Any:
        own = self.start(problem, roster, key)
        return guard.start(own, self.model(own)) if self._auto else own

    def init_client(self, problem, roster, rows, key: Array) -> Any:
        own = self.memory(problem, roster, rows, key)
        if not self._auto:
            return own
        steep = curvature.steepest(problem, starting_point(problem, key), rows)
        return Client(own, jax.tree.map(jnp.copy, own), steep)

    def exchanges(self, problem, roster):
        if not self._auto:
            return (self.trip(),)
        shapes = lambda: self.memory(problem, roster, None, jax.random.key(0))
        memory = jax.eval_shape(shapes)
        if not roster.everyone and jax.tree.leaves(memory):
            raise ValueError(
                f'{type(self).__name__} with step="auto" needs all clients in every round: those '
                f"who were absent could not take back what they remember; give a number as step"
            )
        both = Watched(self, roster.everyone)
        # what is compared from round to round must arrive as it was sent
        watched = replace(self.trip(), broadcast=both.broadcast, unchanged=True)
        return (replace(watched, client=both.client, server=both.server),)

    def solution(self, server):
        return server.x if self._auto else self.model(server)


class Watched:
    """The three functions of a method's trip, under a guard."""

    def __init__(self, method: Guarded, everyone: bool):
        self.method, self.everyone = method, everyone

    def broadcast(self, problem, watch: Watch, now):
        own = self.method.at_pace(watch.eta, watch.scale).broadcast(problem, watch.own, now)
        pace = {"pace": jnp.stack([watch.eta, watch.scale]), "undone": watch.undone}
        return own | pace | ({} if self.everyone else {"kept": watch.x})

    def client(self, problem, rows, state: Client, down, now):
        own = guard.pick(down["undone"], state.before, state.own)
        eta, scale = down["pace"]
        method = self.method.at_pace(jnp.where(eta > 0, eta, 1 / state.steep), scale)
        up, after = method.client(problem, rows, own, down, now)
        seen = {"value": curvature.value(problem, down["model"], rows), "steep": state.steep}
        if not self.everyone:
            seen["before"] = curvature.value(problem, down["kept"], rows)
        # what is not finite would end the run: it is said, and nothing is sent
        fine = guard.finite(up), guard.finite(seen)
        lost = 1 - jnp.stack(fine).astype(state.steep.dtype)
        up, seen = _only(fine[0], up), _only(fine[1], seen)
        after = guard.pick(fine[0], after, own)
        return up | seen | {"lost": lost}, Client(after, own, state.steep)

    def server(self, problem, server_rows, watch: Watch, learnt, now):
        rule: Any = self.method.step
        method, mean = self.method, learnt.mean
        F, known = mean["value"], watch.eta > 0
        reply, seen = learnt.total["lost"] == 0
        kept = ~known | (guard.keeps(rule, watch, F, mean.get("before")) & seen)
        paced = method.at_pace(jnp.where(known, watch.eta, 1), watch.scale)
        step = paced.server(problem, server_rows, watch.own, learnt, now)
        own, info = step if isinstance(step, Reported) else (step, {})
        moves = known & kept & reply & guard.finite(own)
        back = method.shortened(watch.own, watch.x, rule.shrink)
        stays = guard.pick(kept, watch.own, back)
        better = kept & (watch.lowest > F)
        new = Watch(
            own=guard.pick(moves, own, stays),
            x=jnp.where(kept, method.model(watch.own), watch.x),
            value=jnp.where(kept, F, watch.value),
            first=jnp.where(known, watch.first, F),
            lowest=jnp.where(better, F, watch.lowest),
            eta=jnp.where(known, watch.eta, 1 / mean["steep"]),
            scale=watch.scale * jnp.where(moves, rule.grow, jnp.where(known, rule.shrink, 1)),
            undone=~moves,
        )
        seen = {"undone": known & ~moves, "scale": new.scale}
        return Reported(new, info | seen)


def _only(when: Array, numbers: Any) -> Any:
    return jax.tree.map(lambda a: jnp.where(when, a, 0), numbers)
