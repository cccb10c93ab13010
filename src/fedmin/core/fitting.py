"""What a problem must know of all rows before round 0, from sums that every client can take.

client i    problem.tally(its own rows): weights w_i and numbers n_i of rows, for each group
sum         sum_i p_i w_i / (weight of all rows of client i),   sum_i n_i
problem     problem.fitted(that): each group's share of the objective's mean, and its size
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmin.core.federation import Federation
from fedmin.core.problem import Problem
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows


def own_counts(problem: Problem, rows: Rows, roster: Roster) -> np.ndarray:
    """f[2, k]: a client's part, which is all that leaves it: shares of its rows, and numbers."""
    counts = np.asarray(problem.tally(rows, roster), float)
    return counts / [[np.sum(rows.weight, dtype=float)], [1.0]]


def from_counts(
    problem: Problem, each: Sequence[np.ndarray], weights: Any, roster: Roster
) -> Problem:
    """The problem as all clients' counts make it; `weights` are their p_i."""
    shares = sum(p * counts[0] for p, counts in zip(weights, each, strict=True))
    numbers = sum(counts[1] for counts in each)
    return problem.fitted(np.stack([shares, numbers]), roster)


def fitted(problem: Problem, federation: Federation) -> Problem:
    """The problem as the rows of this federation make it: the same sums, taken in one place."""
    roster, rows = federation.roster(), federation.pool
    return problem.fitted(
        own_counts(problem, rows.weighing(federation.measuring_weights()), roster), roster
    )
