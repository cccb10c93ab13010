"""FedFWSto: FedFW on batches, with running gradients.   [dadras2024federated] Algorithm 1

client i    d_i <- (1 - rho_t) d_i + rho_t grad f_i(x_i; batch);   g_i = d_i + c_t (x_i - xbar)
            the rest as in FedFW, d_i = 0 at first
bytes       down d or n atoms (the smaller), up an atom; more as in FedFW if no penalty is given
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedmin.client import Batches, Blocks
from fedmin.client.atoms import check_steps
from fedmin.core import checks
from fedmin.core.schedule import AtomSteps, StochasticSteps
from fedmin.methods.fedfw import FedFW


class FedFWSto(FedFW):
    """FedFW on batches: d_i averages their gradients, so that atoms do not follow the noise.

    >>> import fedmin
    >>> fedmin.FedFWSto(batches=fedmin.Blocks(32)).steps
    StochasticSteps()
    """

    steps: AtomSteps | None = StochasticSteps()  # eta_t, c_t / c_0 and rho_t
    batches: Batches = Blocks(64)

    takes_batches = True
    _printed_steps = StochasticSteps()

    def __check_init__(self):
        checks.is_a("batches", self.batches, Batches, "Blocks(64) or Full()")
        check_steps(self._schedule, "eta", "growth", "rho")
        if self._draws:  # a row may count once in d_i, which noise is for
            steps: Any = self._schedule
            for t in (1.0, 2.0, 1000.0):
                checks.between(f"rho of step {t:g}", np.asarray(steps.rho(t)), 0.0, 1 + 1e-6)

    def first_memory(self, x):
        return jnp.zeros_like(x)  # d_i

    def slope(self, problem, batch, x, d, mean, k, now):
        steps: Any = self._schedule
        rho = steps.rho((self.local_steps * now.round + k + 1).astype(float))
        d = (1 - rho) * d + rho * problem.grad(x, batch)
        return d, d
