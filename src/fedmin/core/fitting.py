"""What a problem must know of all rows before round 0, from sums that every client can take.

client i    problem.tally(its own rows): weights w_i and numbers n_i of rows, for each group; and
            the weight W_i and the number of all its rows
sum         sum_i w_i / sum_i W_i where p_i are shares of the rows, else sum_i p_i w_i / W_i;
            sum_i n_i
problem     problem.fitted(that): each group's share of the objective's mean, and its size

Where columns are split, everybody has the same rows: whoever knows the labels counts them.
"""

from collections.abc import Sequence

import numpy as np

from fedmin.core.federation import Federation
from fedmin.core.matrix import Dense
from fedmin.core.problem import Problem
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows


def own_counts(problem: Problem, rows: Rows, roster: Roster) -> np.ndarray:
    """f8[2, k + 1]: a client's part, which is all that leaves it; the last is of all its rows."""
    counts = np.asarray(problem.tally(rows, roster), float)
    weight = np.asarray(rows.weight, float)
    return np.concatenate([counts, [[weight.sum()], [np.sum(weight > 0)]]], axis=1)


def numbers_to_count(problem: Problem, roster: Roster) -> int:
    """k: how many counts a problem needs before round 0; most need none."""
    kind, shape = roster.target
    group = np.zeros(1, np.int32) if roster.groups else None
    x = Dense(np.zeros((1, roster.features), roster.dtype))
    one = Rows(x, np.zeros((1, *shape), kind), np.ones(1, roster.dtype), group)
    return problem.tally(one, roster).shape[1]


def counting(roster: Roster) -> list[int]:
    """The clients that count: all, or of those who hold columns the first that knows the labels."""
    knowing = [i for i in range(roster.clients) if roster.knows_labels(i)]
    return knowing if roster.owners is None else knowing[:1]


def summed(each: Sequence[np.ndarray], roster: Roster) -> np.ndarray:
    """f8[2, k]: the groups' shares and numbers, from what those who count have said."""
    weights, numbers = np.stack(each)[:, 0], np.stack(each)[:, 1, :-1].sum(axis=0)
    own, all_rows = weights[:, :-1], weights[:, -1:]
    if roster.owners is not None or roster.by_rows:  # whole numbers stay whole
        return np.stack([own.sum(axis=0) / all_rows.sum(), numbers])
    p = np.asarray(roster.shares, float)[:, None]
    return np.stack([(p * own / all_rows).sum(axis=0) / p.sum(), numbers])


def fitted(problem: Problem, federation: Federation) -> Problem:
    """The problem as the rows of this federation make it: the same sums, taken in one place."""
    roster = federation.roster()
    if not numbers_to_count(problem, roster):
        return problem.fitted(np.zeros((2, 0)), roster)
    clients = range(federation.num_clients)
    rows = map(federation.client, clients) if roster.owners is None else [federation.pool]
    return problem.fitted(summed([own_counts(problem, r, roster) for r in rows], roster), roster)
