"""FedSGM: a gradient step on the objective or on what is violated.   [upadhyay2026fedsgm] Alg. 1

    client i    f_m(x) on a batch, m = 1..M
    server      G = max_m mean f_m;   s = [G > eps]      (soft: s = clip(1 + sharp (G - eps), 0, 1))
    client i    y <- x;  K times  y <- y - eta ((1 - s) grad f_0(y) + s grad f_m*(y)),  m* = argmax
    server      x <- x + mean(y - x)
    bytes       down d + 1 + M, up d + M

Two exchanges a round; without constraints the second alone, which is FedAvg. `best=True` gives the
theorem's answer, the mean of the x that were within eps when they were looked at; the last x is
given else, and before there was one. The paper's compression is a channel here.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps, priced
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point


class Server(NamedTuple):
    x: Array  # the model
    price: Array  # 1 - s for the objective, s for the constraint that is violated most, f[1 + M]
    met: Array  # the mean of the x that met the constraints
    times: Array  # how many of them there were


class FedSGM(LocalSteps):
    """Local steps down the objective while limits are met, else down the most violated constraint.

    >>> import fedmin
    >>> fedmin.FedSGM(step=0.1, local_steps=5).within
    0.0
    """

    within: float = 0.0  # epsilon: what counts as met
    sharp: float | None = None  # beta of the soft switch; none: all or nothing
    best: bool = eqx.field(default=False, static=True)  # the mean of the models within the limits

    citation = "upadhyay2026fedsgm"
    handles = frozenset({"rows", "constraints"})

    def __check_init__(self):
        checks.between("within", self.within, 0.0)
        if self.sharp is not None:
            checks.positive("sharp", self.sharp)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        price = priced.first(problem.num_constraints, x.dtype)
        return Server(x, price, jnp.array(x), jnp.zeros((), x.dtype))

    def exchanges(self, problem, roster):
        walk = Exchange(self.tell_price, self.walk_down, self.move)
        if problem.num_constraints:
            return (Exchange(self.tell_model, self.measure, self.switch), walk)
        return (Exchange(self.tell_all, self.walk_down, self.move),)

    def tell_model(self, problem, server, now):
        return {"model": server.x}

    def tell_price(self, problem, server, now):
        return {"price": server.price}

    def tell_all(self, problem, server, now):
        return {"model": server.x, "price": server.price}

    def measure(self, problem, rows, state, down, now):
        batches = self.batches.at(now.round)
        batch = batches.read(rows, batches.draw(rows, now.secret, jnp.int32(0)))
        return {"values": problem.constraints(down["model"], batch)}, state

    def switch(self, problem, server_rows, server, learnt, now):
        values = learnt.mean["values"]
        over = jnp.max(values) - self.within
        share = jnp.where(over > 0, 1.0, 0.0)
        if self.sharp is not None:
            share = jnp.clip(1 + self.sharp * over, 0, 1)
        worst = jnp.arange(len(values)) == jnp.argmax(values)
        price = jnp.concatenate([1 - share[None], jnp.where(worst, share, 0)])
        meets = jnp.where(over <= 0, 1.0, 0.0).astype(server.x.dtype)
        count = server.times + meets
        met = server.met + meets / jnp.maximum(count, 1) * (server.x - server.met)
        return Server(server.x, price.astype(server.x.dtype), met, count)

    def walk_down(self, problem, rows, state, down, now):
        x, step = down["model"], schedule.at(self.step, now.round)
        down_it = lambda y, batch: y - step * priced.slope(problem, y, batch, down["price"])
        return {"update": self.walk(rows, x, now, down_it) - x}, state

    def move(self, problem, server_rows, server, learnt, now):
        return server._replace(x=server.x + learnt.mean["update"])

    def solution(self, server):
        return jnp.where(server.times > 0, server.met, server.x) if self.best else server.x

    def report(self, server) -> dict[str, Any]:
        return {"feasible_rounds": server.times} if len(server.price) > 1 else {}
