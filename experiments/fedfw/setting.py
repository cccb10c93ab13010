"""How large the checks are: as near to the paper's setting as a small machine allows, and tiny."""

from dataclasses import dataclass
from itertools import product

from experiments.fedfw.runs import Curve, Spec, World

SCALINGS = ("0-1", "standardized")
SPLITS = ("iid", "non-iid")
BALLS = ("l2", "l1")


@dataclass(frozen=True)
class Setting:
    """The paper's: radius 10, 10 clients and 100 rounds; stochastic 100 clients and 300 rounds.

    Every method's knobs are searched for each cell of a table, by the objective at the end, on at
    most `search_rows` rows: six values of c_0, twelve pairs of FedDR's. The best two run on `most`,
    and the better of them counts.
    """

    tables: tuple[str, ...] = ("mnist", "synthetic", "cifar10_batch1")
    splits: tuple[str, ...] = SPLITS
    balls: tuple[str, ...] = BALLS
    rounds: int = 100
    clients: int = 10
    search_rows: int = 2000
    finalists: int = 2
    most: int = 10_000  # training rows of the runs that count; 0 for all
    mnist_rows: int = 0  # the same for softmax regression on MNIST
    penalties: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)  # c_0 = n lambda_0
    scales: tuple[float, ...] = (1.0, 10.0, 100.0)  # eta L of FedDR
    locals: tuple[int, ...] = (1,)  # local steps of FedDR: the paper's one a round
    lengths: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0)  # of FedDR's local steps, times L + 1/eta
    network_rows: int = 3000  # of MNIST, for the CNN
    network_search: int = 300
    stochastic_rounds: int = 300
    stochastic_clients: int = 100
    batch: int = 64
    chances: tuple[float, ...] = (0.1, 0.3, 0.5, 1.0)  # p
    seeds: tuple[int, ...] = (0, 1, 2)  # where chance is in it
    leakage_tables: tuple[str, ...] = ("mnist", "cifar10_batch1")
    leakage_networks: tuple[str, ...] = ("fig1",)  # or "mclr", softmax regression
    leakage_batches: tuple[int, ...] = (1, 4, 64)
    leakage_rounds: tuple[int, ...] = (0, 10)  # before the message that is attacked
    leakage_victims: int = 3  # images, where a batch is one
    leakage_clients: int = 4
    leakage_steps: int = 300  # of the optimizer; a fifth of them for batches above 4

    def grid(self, method: str) -> list[tuple[float, ...]]:
        """The knobs that are tried."""
        if method == "feddr":
            return [tuple(map(float, k)) for k in product(self.scales, self.locals, self.lengths)]
        return [(penalty,) for penalty in self.penalties]

    def tuned(self, world: World, spec: Spec, method: str) -> Curve:
        """The cell's run with the best knobs of the grid."""
        fewer = self.network_search if spec.model == "cnn" else self.search_rows
        rows = min(fewer, spec.most) if spec.most else fewer
        base = spec._replace(method=method)
        if spec.table == "synthetic":
            rows = spec.most
        tried = [base._replace(knobs=knobs, most=rows) for knobs in self.grid(method)]
        name = " ".join((*spec[:5], method))
        grid = world.curves(tried, f"{name}: grid", records=1)
        best = sorted(grid, key=lambda curve: curve.cost)[: self.finalists]
        chosen = [curve.spec._replace(most=spec.most) for curve in best]
        return min(world.curves(chosen, f"{name}: the best"), key=lambda curve: curve.cost)


QUICK = Setting(
    tables=("synthetic",),
    splits=("non-iid",),
    balls=("l2",),
    rounds=6,
    clients=4,
    search_rows=400,
    most=0,
    penalties=(0.1, 1.0),
    scales=(10.0,),
    locals=(1,),
    lengths=(1.0,),
    network_rows=40,
    network_search=40,
    stochastic_rounds=6,
    stochastic_clients=5,
    batch=8,
    chances=(0.5, 1.0),
    seeds=(0,),
    leakage_tables=("digits",),
    leakage_networks=("mclr",),
    leakage_batches=(1,),
    leakage_rounds=(0,),
    leakage_victims=1,
    leakage_steps=20,
)
