"""Sets that a solution may be confined to, and penalties in their place, one family a file.

May import: core. To add one, copy `LinfBall` in `balls.py`, and give it a line in `DOMAINS`.
"""

from fedmin.core.domain import Free
from fedmin.domains.balls import Box, L1Ball, L2Ball, LinfBall, Simplex
from fedmin.domains.groups import GroupL1Ball, KSparsePolytope
from fedmin.domains.intersection import Intersection
from fedmin.domains.nuclear import NuclearBall
from fedmin.domains.penalties import L1Penalty, NuclearPenalty
from fedmin.domains.product import Product
from fedmin.domains.rank import RankBall
from fedmin.domains.sparse import Entries, L0Ball

DOMAINS = {
    "free": Free,
    "l0ball": L0Ball,
    "entries": Entries,
    "rankball": RankBall,
    "l1ball": L1Ball,
    "l2ball": L2Ball,
    "linfball": LinfBall,
    "box": Box,
    "simplex": Simplex,
    "ksparsepolytope": KSparsePolytope,
    "groupl1ball": GroupL1Ball,
    "nuclearball": NuclearBall,
    "product": Product,
    "l1penalty": L1Penalty,
    "nuclearpenalty": NuclearPenalty,
    "intersection": Intersection,
}

__all__ = [
    "DOMAINS",
    "Box",
    "Entries",
    "GroupL1Ball",
    "Intersection",
    "KSparsePolytope",
    "L0Ball",
    "L1Ball",
    "L1Penalty",
    "L2Ball",
    "LinfBall",
    "NuclearBall",
    "NuclearPenalty",
    "Product",
    "RankBall",
    "Simplex",
]
