"""fw-leakage: what can be rebuilt of images from gradients, models and atoms (Fig. 1).

The network of Fig. 1 is that of Deep Leakage [zhu2019deep]: three convolutions of 12 channels with
sigmoids, then one linear layer, weights drawn uniformly from [-0.5, 0.5]. The sets are balls a
tensor, each so large that this start lies within: an atom's size says nothing.
"""

import math
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedmin
from experiments.fedfw.runs import rows_of
from experiments.paper import Claim, judge, kept, recalled
from experiments.ssca.runs import bar
from fedmin.assembling import assemble
from fedmin.engines.observing import Before, Scene, first_states
from fedmin.privacy.audit.attack import Effort, Public, Target, attacked

MUCH = 3.0  # decibels: half the error, "much" better
MESSAGES = ("gradient", "model", "l2", "l1", "nuclear", "linf")


class Cell(NamedTuple):
    """One reconstruction: of whose rows, from which message."""

    table: str
    network: str  # "fig1" or "mclr", softmax regression
    message: str
    batch: int
    rounds: int  # before the message
    victim: int


@dataclass
class Rebuilt:
    """What came of it, in decibels up to brightness and contrast."""

    spec: Cell
    psnr: float
    guess: float  # of the average image
    attack: str
    labels: float
    labels_guess: float


def sigmoid_lenet(image: tuple[int, int, int], classes: int, seed: int = 0) -> fedmin.Problem:
    """The network of Fig. 1."""
    rng = np.random.default_rng(seed)
    height, _, depth = image
    side = math.ceil(math.ceil(height / 2) / 2)
    shapes = {"conv_1": (12, 25 * depth), "conv_2": (12, 300), "conv_3": (12, 300),
              "dense": (classes, 12 * side * side)}  # fmt: skip
    drawn: dict[str, Any] = {}
    for name, shape in shapes.items():
        drawn[name] = jnp.asarray(rng.uniform(-0.5, 0.5, shape), jnp.float32)
        drawn[f"{name}_bias"] = jnp.asarray(rng.uniform(-0.5, 0.5, shape[0]), jnp.float32)

    def loss(params, z, y):
        h = z
        for k, stride in ((1, 2), (2, 2), (3, 1)):
            h = jax.nn.sigmoid(
                patches(h, stride) @ params[f"conv_{k}"].T + params[f"conv_{k}_bias"]
            )
        logits = params["dense"] @ h.ravel() + params["dense_bias"]
        return jax.nn.logsumexp(logits) - logits[y]

    return fedmin.from_loss(loss, drawn, row_shape=image)


def patches(h: Any, stride: int) -> Any:
    """What a kernel of 5 x 5 sees at each place, f[h', w', 25 c]: read by numbers of pixels, whose
    derivatives are as cheap to compile and to compute on a CPU; those of a convolution are not."""
    height, width, _ = h.shape
    rows, columns = -(-height // stride), -(-width // stride)
    wide = jnp.pad(h, ((2, 2 + stride), (2, 2 + stride), (0, 0)))
    down = stride * np.arange(rows)[:, None] + np.arange(5)
    across = stride * np.arange(columns)[:, None] + np.arange(5)
    places = down[:, None, :, None] * wide.shape[1] + across[None, :, None, :]
    seen = wide.reshape(-1, h.shape[2])[places.reshape(rows, columns, 25)]
    return seen.reshape(rows, columns, -1)


SETS = {"l2": fedmin.L2Ball, "l1": fedmin.L1Ball, "linf": fedmin.LinfBall}
NORMS = {"l2": 2, "l1": 1, "linf": np.inf}


def confined(problem: fedmin.Problem, message: str) -> fedmin.Problem:
    """The problem over a ball a tensor, which its start lies in."""
    if message not in (*SETS, "nuclear"):
        return problem
    start = np.asarray(problem.init(jax.random.key(0)))
    sizes = [math.prod(shape) for shape in problem.parts.values()]
    pieces = np.split(start, np.cumsum(sizes)[:-1])
    sets: dict[str, Any] = {}
    for (name, shape), piece in zip(problem.parts.items(), pieces, strict=True):
        if message == "nuclear" and len(shape) == 2:
            whole = np.linalg.norm(piece.reshape(shape), "nuc")
            sets[name] = fedmin.NuclearBall(1.01 * max(float(whole), 1.0))
        else:  # tensors that are no matrices have no nuclear norm
            kind = "l2" if message == "nuclear" else message
            size = float(np.linalg.norm(piece, NORMS[kind]))
            sets[name] = SETS[kind](1.01 * max(size, 1.0))
    return fedmin.over(problem, fedmin.Product(sets))


def method_of(cell: Cell) -> fedmin.Method:
    """What sends such a message."""
    if cell.message == "gradient":
        return fedmin.FedSGD(0.1, batches=fedmin.Full())
    if cell.message == "model":
        return fedmin.FedAvg(0.1, local_steps=2, batches=fedmin.Full())
    return fedmin.FedFW.printed(0.1, steps=fedmin.NonconvexSteps(100.0))


@cache
def problem_of(table: str, network: str, message: str) -> fedmin.Problem:
    rows = rows_of(table, "0-1", 0)
    plain = fedmin.Softmax(rows.features, rows.classes)
    image: Any = rows.image_shape
    return confined(plain if network == "mclr" else sigmoid_lenet(image, rows.classes), message)


@cache
def holding(table: str, batch: int, clients: int, first: int = 0) -> fedmin.Federation:
    """Clients with `batch` images each, from the `first` one on."""
    rows = rows_of(table, "0-1", 0)
    order = np.random.default_rng(7).permutation(rows.rows)
    order = order[first * batch : (first + clients) * batch]
    x, y = np.asarray(rows.x)[order].astype(np.float32), np.asarray(rows.y)[order]
    parts = [np.arange(i * batch, (i + 1) * batch) for i in range(clients)]
    return fedmin.Federation.from_parts(x, y, parts, classes=rows.classes)


@cache
def public(table: str) -> Public:
    """The average of images that nobody of the clients holds, and that they are images."""
    rows = rows_of(table, "0-1", 0)
    others = np.random.default_rng(7).permutation(rows.rows)[-2000:]
    x, y = np.asarray(rows.x)[others], np.asarray(rows.y)[others]
    return Public(
        x.mean(axis=0), (0.0, 1.0), rows.classes, int(np.bincount(y).argmax()), rows.image_shape
    )


@cache
def scene(cell: Cell, clients: int) -> Scene:
    """The round in which the message is sent. In the first one a reply depends on nobody else, and
    its client is there alone; all victims share a later one."""
    problem, method = problem_of(cell.table, cell.network, cell.message), method_of(cell)
    there = (clients, 0) if cell.rounds else (1, cell.victim)
    federation = holding(cell.table, cell.batch, *there)
    everyone, plain = fedmin.Everyone(), fedmin.Plain()
    run = assemble(problem, federation, method, everyone, plain, (fedmin.Objective(),), None)
    before = first_states(run, federation, 0)
    if cell.rounds:
        found = fedmin.minimize(
            problem, federation, method, rounds=cell.rounds, every=cell.rounds, progress=False,
            record=(fedmin.Objective(),), certificate=False,
        )  # fmt: skip
        before = Before(found.server, found.clients, found.memory)
    return Scene(run, federation, before, cell.rounds, 0)


@cache
def slope_of(table: str, network: str) -> Any:
    """The gradient at a given x, with a given term added: one program for all messages but models,
    since what is behind an atom is such a gradient too."""
    problem = problem_of(table, network, "gradient")

    def slope(z, y, x, term):
        rows = fedmin.Rows(fedmin.Dense(z), y, jnp.ones(len(z), z.dtype))
        return jax.grad(problem.value)(x, rows) + term

    return slope


def target_of(cell: Cell, place: Scene) -> Target:
    """The message as a function of rows, the one that was sent, and the truth."""
    me = cell.victim if cell.rounds else 0
    view = place.server_sees(me)
    z, y = (a[0] for a in place.held(view))
    classes = rows_of(cell.table, "0-1", 0).classes
    layer = (classes, z.shape[-1]) if cell.network == "mclr" else None
    if cell.message == "model":
        return Target(lambda a, b: view.message(a[None], b[None]), view.seen, z, y, layer=layer)
    slope, share = slope_of(cell.table, cell.network), float(place.roster.share(me))
    if cell.message == "gradient":
        x = jnp.asarray(place.before.server)
        given = x, jnp.zeros_like(x)
        return Target(slope, view.seen / share, z, y, layer=layer, given=given)
    assert view.behind is not None
    x = place.before.clients.x[me]
    own = view.behind(z[None], y[None])  # with the penalty, which the server can compute
    given = x, own - slope(jnp.asarray(z), jnp.asarray(y), x, jnp.zeros_like(x))
    domain: Any = place.run.problem.domain
    cuts = tuple(int(n) for n in np.cumsum(domain.lengths)[:-1])
    return Target(slope, view.seen, z, y, slope, cuts, layer, given)


def rebuild(cell: Cell, clients: int, steps: int) -> Rebuilt:
    """Attack one message."""
    target = target_of(cell, scene(cell._replace(victim=0) if cell.rounds else cell, clients))
    effort = Effort(steps, starts=0, directions=0)
    outcome = attacked(target, public(cell.table), effort, seed=cell.victim)
    best = outcome.best
    return Rebuilt(
        cell, round(best.psnr, 2), round(outcome.guess, 2), best.attack,
        outcome.labels or 0.0, outcome.labels_guess or 0.0,
    )  # fmt: skip


def cells(setting: Any) -> list[Cell]:
    """All of them; few victims where batches are large."""
    tables = [t for t in ("mnist", "cifar10_batch1", "digits") if t in setting.leakage_tables]
    found = []
    for batch, network, rounds, table, message in product(
        setting.leakage_batches, setting.leakage_networks, setting.leakage_rounds, tables, MESSAGES
    ):
        victims = setting.leakage_victims if batch == 1 else 1
        found += [Cell(table, network, message, batch, rounds, v) for v in range(victims)]
    return found


def rebuilt(book: Path | None, setting: Any) -> dict[Cell, Rebuilt]:
    """All of them; what is in the book already is taken from there."""
    path = None if book is None else book.with_name("leakage.json")
    done = recalled(path, Cell, Rebuilt)
    wanted = cells(setting)
    with bar("fw-leakage", len(wanted)) as tick:
        for cell in wanted:
            if cell not in done:
                steps = setting.leakage_steps if cell.batch <= 4 else setting.leakage_steps // 5
                done[cell] = rebuild(cell, setting.leakage_clients, steps)
                kept(path, done.values())
            tick()
    return done


def leakage(world: Any, setting: Any) -> Claim:
    """fw-leakage: PSNR from gradients >> from l2 atoms >> from l1 atoms."""
    done = rebuilt(world.book, setting)
    groups: dict[tuple, dict[str, list[Rebuilt]]] = {}
    for cell in cells(setting):
        one = done[cell]
        key = (cell.table, cell.network, cell.batch, cell.rounds)
        groups.setdefault(key, {}).setdefault(cell.message, []).append(one)
    first, second, said, numbers = [], [], [], {}
    for key, found in groups.items():
        mean = {m: float(np.mean([r.psnr for r in some])) for m, some in found.items()}
        guess = float(np.mean([r.guess for r in found["gradient"]]))
        first.append(mean["gradient"] >= mean["l2"] + MUCH)
        second.append(mean["l2"] >= mean["l1"] + MUCH)
        name = f"{key[0]} {key[1]} batch {key[2]} round {key[3] + 1}"
        numbers[name] = {m: [asdict(r) | {"spec": r.spec._asdict()} for r in some]
                         for m, some in found.items()}  # fmt: skip
        shown = ", ".join(f"{m} {mean[m]:.1f}" for m in MESSAGES)
        said.append(f"{name}: {shown}, average image {guess:.1f}")
    return Claim(
        "fw-leakage", "images are rebuilt from gradients far better than from l2 atoms, and from "
        "these far better than from l1 atoms",
        "PSNR in dB of the best attack: " + "; ".join(said),
        f"gradients at least {MUCH:g} dB above l2 atoms, these {MUCH:g} dB above l1 atoms, in "
        "every cell", judge(first + second),
        f"gradients are {MUCH:g} dB above l2 atoms in {sum(first)} of {len(first)} cells, l2 atoms "
        f"above l1 atoms in {sum(second)}; up to brightness and contrast, the best of all attacks "
        f"by the truth, {setting.leakage_steps} steps each", numbers,
    )  # fmt: skip
