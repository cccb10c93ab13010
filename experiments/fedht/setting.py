"""How large the checks are: the paper's setting, and a tiny one that shows that all runs."""

from dataclasses import dataclass, field

from experiments.fedht import worlds
from experiments.fedht.runs import LOCAL, STEPS, Spec


@dataclass(frozen=True)
class Setting:
    """The paper's setting; what it leaves open (l2, batches) is said here."""

    alphas: tuple[float, ...] = (0.1, 0.5, 1.0)
    two_alphas: tuple[float, ...] = (0.1, 0.5, 1.0)  # of Simulation II
    steps: tuple[float, ...] = STEPS
    local: tuple[int, ...] = LOCAL
    other_local: tuple[int, ...] = LOCAL  # text and digits
    below: tuple[float, ...] = (3e-4, 1e-4)  # for local steps in Simulation I, see README.md
    one_rounds: int = 100  # of Simulation I
    two_rounds: int = 200  # of Simulation II
    two_every: int = 5
    two_batch: int = 50  # rows a local step in Simulation II; all 100 rows in I
    two_search: int = 50  # rounds of the search among steps in Simulation II
    other_rounds: int = 100  # text and digits
    other_batch: int = 50
    l2: float = 1e-4  # lambda, which the paper does not give
    text: str = "reuters"
    digits: str = "mnist"
    tau: int = 500  # a class of digits
    pieces: int = 20  # into which a cluster of text or digits is cut
    first_step: float = 0.1  # of SparseNewton, never searched
    seeds: tuple[int, ...] = (0, 1, 2)  # of Simulation I; the others have the first
    one_size: dict = field(default_factory=dict)
    two_size: dict = field(default_factory=dict)

    def names(self, kind: str) -> list[str]:
        """The worlds of a simulation."""
        alphas = {"sim1": self.alphas, "sim2": self.two_alphas}[kind]
        return [f"{kind}-{alpha:g}" for alpha in alphas]

    def make(self, name: str, seed: int) -> worlds.World:
        """The world of this name."""
        kind, _, value = name.partition("-")
        if kind == "sim1":
            return worlds.simulation_one(float(value), seed, **self.one_size)
        if kind == "sim2":
            return worlds.simulation_two(float(value), seed, self.l2, **self.two_size)
        if kind == "text":
            return worlds.text(self.text, seed, self.l2, self.pieces)
        return worlds.digits(self.digits, seed, self.l2, self.tau, self.pieces)

    def spec(self, world: str, method: str, local: int, step: float, **changes) -> Spec:
        """One run in one of the worlds."""
        kind = world.partition("-")[0]
        rounds, every, batch = {
            "sim1": (self.one_rounds, 1, 0),
            "sim2": (self.two_rounds, self.two_every, self.two_batch),
        }.get(kind, (self.other_rounds, 1, self.other_batch))
        if method in ("distributediht", "sparsenewton"):
            batch = 0
        if method == "sparsenewton":
            every = 1
            rounds = min(rounds, 100)
        given = {"rounds": rounds, "every": every, "batch": batch, "seed": self.seeds[0]}
        return Spec(world, method, local, step, **(given | changes))


QUICK = Setting(
    alphas=(0.1, 1.0),
    two_alphas=(0.1,),
    steps=(0.1, 0.01),
    below=(),
    local=(3, 5),
    other_local=(3,),
    one_rounds=10,
    two_rounds=10,
    two_search=5,
    other_rounds=5,
    text="made",
    digits="digits",
    tau=20,
    pieces=2,
    seeds=(0,),
    one_size={"clients": 5, "rows": 20, "features": 40, "support": 4},
    two_size={"clients": 5, "rows": 30, "features": 40, "support": 4, "positives": 10},
)
