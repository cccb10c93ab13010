"""FedFWPlus: FedFW with multipliers for the consensus of clients.   [dadras2024federated] Alg. 1

    client i    y_i <- y_i + c_0 (x_i - xbar);   g_i = grad f_i(x_i) + c_t (x_i - xbar) + y_i
                the rest as in FedFW, y_i = 0 at first
    bytes       down d or n atoms (the smaller), up an atom

y_i here is n times the paper's, as g_i is; with p_i = 1/n the atoms are the same.
"""

from typing import Any

import jax.numpy as jnp

from fedmin.methods.fedfw import FedFW


class FedFWPlus(FedFW):
    """FedFW by an augmented Lagrangian: y_i remember how far x_i were from xbar.

    >>> import fedmin
    >>> fedmin.FedFWPlus.printed(0.1).penalty
    0.1
    """

    def first_memory(self, x):
        return jnp.zeros_like(x)  # y_i

    def slope(self, problem, batch, x, y, mean, k, now):
        penalty: Any = self.penalty
        y = y + jnp.where(k == 0, penalty, 0.0) * (x - mean)  # xbar is new once a round
        return problem.grad(x, batch) + y, y
