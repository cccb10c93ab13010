"""How large the checks are: the paper's setting, and a small one that shows that all runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.fedsso.runs import FIRST_ORDER, SEARCHED, Book, Spec

SEARCH_SEED = 1000  # steps are chosen with a seed that no result has


@dataclass(frozen=True)
class Setting:
    """The paper's setting: its grid, batches of 100, tau = 5, 200 rounds."""

    convex: str = "mnist"
    network: str = "mnist-cnn"
    two: str = "mnist-two"
    libsvm: str = "ijcnn1"
    text: str = "shakespeare"
    rounds: int = 200
    seeds: tuple[int, ...] = (0, 1, 2)
    local_steps: int = 5
    levels: tuple[float, ...] = (0.80, 0.88, 0.90, 0.91, 0.92)
    steps: tuple[float, ...] = (  # alpha
        1e-4, 3e-4, 7e-4, 1e-3, 3e-3, 7e-3, 0.01, 0.03, 0.07, 0.1, 0.3, 0.7,
    )  # fmt: skip
    server_steps: tuple[float, ...] = (0.01, 0.03, 0.07, 0.1, 0.3, 0.7, 1.0)  # eta
    strong: tuple[float, ...] = (1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 1.0)  # mu of FedAC, FedDANE
    learning: tuple[float, ...] = (0.5, 1.0)  # alpha of FedNL
    search_rounds: int = 40
    finalists: int = 3
    network_rounds: int = 60
    network_every: int = 2  # measuring takes as long as a round
    network_seeds: tuple[int, ...] = (0,)
    network_finalists: int = 1
    network_search: int = 10
    network_steps: tuple[float, ...] = (0.01, 0.03, 0.07, 0.1, 0.3)
    network_server_steps: tuple[float, ...] = (0.1, 1.0)
    local: tuple[int, ...] = (1, 2, 5, 10, 20, 50)  # tau of sso-local-steps
    two_rounds: int = 80
    two_batches: tuple[int, ...] = (100, 500)
    two_steps: tuple[float, ...] = (0.03, 0.1, 0.3, 0.7)  # alpha; eta = 1
    absent: tuple[str, ...] = ("drop 30 %", "5 of 20")  # of WHO
    absent_methods: tuple[str, ...] = (
        "fedsso", "fedsso-same", "fedsso-points", "fedsso-memory", "fedsso-same-memory",
        "fedsso-points-memory", "fedavg", "fedopt",
    )  # fmt: skip
    absent_last: int = 50  # rounds over which a run should be steady
    absent_every: int = 5  # measured in the search
    methods: tuple[str, ...] = SEARCHED
    apart: dict[str, tuple[str, ...]] = field(  # worlds with other methods
        default_factory=lambda: {
            "mnist-cnn": ("fedsso", *FIRST_ORDER),  # a second a round
            "ijcnn1": (*SEARCHED, "fednl"),  # d = 22: a matrix at every client is small
        }
    )

    def rivals(self, world: str) -> tuple[str, ...]:
        """The methods that are compared in a world."""
        return self.apart.get(world, self.methods)

    def book(self, path: Path | None = None, say: Callable[[str], None] = print) -> Book:
        """Where the runs are kept."""
        return Book(path, say=say)

    def spec(self, world: str, method: str, steps, **changes) -> Spec:
        """A run with the paper's settings, or changed ones."""
        given = {"rounds": self.rounds, "local_steps": self.local_steps}
        return Spec(world, method, tuple(steps), **{**given, **changes})


QUICK = Setting(
    convex="digits",
    network="digits",
    two="digits",
    libsvm="digits",
    text="digits",
    rounds=12,
    seeds=(0,),
    levels=(0.2, 0.5, 0.8),
    steps=(0.01, 0.1),
    server_steps=(0.3, 1.0),
    search_rounds=4,
    finalists=1,
    network_rounds=12,
    network_every=1,
    network_search=4,
    network_steps=(0.01, 0.1),
    network_server_steps=(1.0,),
    local=(1, 5),
    two_rounds=12,
    two_batches=(100,),
    two_steps=(0.1,),
    absent=("drop 30 %",),
    absent_methods=("fedsso", "fedsso-points-memory", "fedavg"),
    absent_last=4,
    absent_every=1,
    methods=("fedsso", "fedavg"),
)
