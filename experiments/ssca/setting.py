"""How large the checks are: the papers' setting, and a small one that shows that all runs."""

from dataclasses import dataclass

from experiments.ssca.runs import ON_COLUMNS, PAPER, Spec, World
from fedmin import data

SEARCH_SEED = 1000  # steps are chosen with a seed that no result has


@dataclass(frozen=True)
class Setting:
    """The papers' setting (1.3 of METHODS: MNIST, ten clients); fewer runs than their 100."""

    table: str = "mnist"
    clients: int = 10
    rounds: int = 1000
    every: int = 25
    seeds: tuple[int, ...] = (0, 1, 2)
    sizes: tuple[int, ...] = (1, 10, 100)  # B
    weight: float = 1e-5  # lambda
    limit: float = 0.13  # U
    level: float = 0.3  # 'converges faster': rounds until the cost is this low
    search_rounds: int = 250
    finalists: int = 4  # steps that are tried over all rounds
    scales: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # abar
    powers: tuple[float, ...] = (0.0, 0.3, 0.5)  # albar
    long_rounds: int = 3000  # for one seed, where `rounds` may be too few
    starts: tuple[float, ...] = (0.25, 0.5)  # other scales of the start, for one seed
    shifts: tuple[float, ...] = (-0.1, 0.1)  # of alpha, tried where the papers' does not reach U
    margin: float = 0.02  # tried there too: what is asked for is lower than U
    tradeoff_batch: int = 100
    weights: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2)  # lambdas of the trade-off
    long_weights: tuple[float, ...] = (1e-4, 1e-3)  # with `long_rounds` too
    limits: tuple[float, ...] = (0.1, 0.13, 0.2, 0.3, 0.5)  # Us

    def federation(self):
        """Ten clients with like shares."""
        return data.partition(data.load(self.table), data.IID(self.clients), seed=0)

    def world(self, book=None) -> World:
        """Where the runs happen."""
        return World(self.federation(), book)

    def spec(self, algorithm: str, batch: int, seed: int, **changes) -> Spec:
        """An algorithm of the papers with their settings for this batch, or changed ones."""
        free, bounded = {"weight": self.weight}, {"limit": self.limit}
        which = {"alg1": free, "alg2": bounded, "alg3": free, "alg4": bounded}[algorithm]
        # on columns a batch is of all clients together: as many rows a round, the same schedule
        share = batch // self.clients if algorithm in ON_COLUMNS else batch
        given = {"rounds": self.rounds, "every": self.every, "schedule": PAPER[share]}
        return Spec(algorithm, batch, seed, **{**given, **which, **changes})


QUICK = Setting(
    starts=(),
    table="digits",
    clients=3,
    rounds=20,
    every=5,
    seeds=(0,),
    sizes=(1, 10),
    level=1.5,
    search_rounds=10,
    finalists=1,
    scales=(0.2, 1.0),
    powers=(0.0, 0.5),
    long_rounds=40,
    tradeoff_batch=10,
    # a certificate is compiled anew for each value of these: few of them
    weight=1e-4,
    weights=(1e-4,),
    long_weights=(1e-4,),
    limit=1.0,
    limits=(1.0, 2.0),
    shifts=(),
    margin=-1.0,
)
