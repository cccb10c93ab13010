"""A limit on the loss of one group: tumours at five clinics, the malignant ones bounded.   [SSCA]

A free fit has its smallest loss where it serves the many better than the few. Here the mean loss
over malignant tumours has a limit, the total loss is minimized under it, and only sums of the
clinics' replies can be read by the server.
"""

import numpy as np

from fedmin import data
from fedmin.channels import SecureSum
from fedmin.cli.demo.card import BLUE, GRAY, RED, Card, Setting, plain
from fedmin.client import Full
from fedmin.core.metrics import Objective
from fedmin.core.result import Result
from fedmin.methods import SSCA
from fedmin.minimizing import minimize
from fedmin.problems import GroupLossAtMost, Logistic, subject_to

SITES, LIMIT, BOUND = 5, 0.05, 16.0
NAMES = ("malignant", "benign")  # the labels 0 and 1
CODE = """\
clinics = data.partition(data.load("breast_cancer").standardized(), data.IID(5))
problem = fedmin.Logistic(30, l2=1e-3, bias=True)
limited = fedmin.subject_to(problem, fedmin.GroupLossAtMost({"0": 0.05}))    # 0: malignant
result = fedmin.minimize(
    limited, clinics, fedmin.SSCA(1.0, 0.5, tau=0.5, batches=fedmin.Full()),
    rounds=300, channel=fedmin.SecureSum(bound=16.0),
)
print(result.certificate)"""


def card(setting: Setting) -> Card:
    """The free fit and the bounded one, group by group."""
    table = data.load("breast_cancer")
    assert isinstance(table, data.Table)
    table = table.standardized()
    clinics = data.partition(table, data.IID(SITES))
    problem = Logistic(table.features, l2=1e-3, bias=True)
    limited = subject_to(problem, GroupLossAtMost({"0": LIMIT}))
    rounds = setting.rounds(300)
    method = SSCA(1.0, 0.5, tau=0.5, batches=Full())
    free = minimize(problem, clinics, method, rounds=rounds, every=rounds, record=[Objective()])
    bounded = minimize(
        limited, clinics, method, rounds=rounds, every=rounds, channel=SecureSum(bound=BOUND)
    )
    losses = {
        name: [_loss(table, result, group) for group in NAMES]
        for name, result in (("free fit", free), ("bounded", bounded))
    }
    before, after = (losses[name][0] for name in losses)
    met = bounded.certificate is not None and bounded.certificate.violation <= 1e-3
    sentence = (
        f"Five clinics fit one model of tumours. Left free, its mean loss on the malignant ones is "
        f"{before:.3f}; with a limit of {LIMIT} it is {after:.4f}, and the certificate "
        f"{'says that the limit is met' if met else 'says that the limit is not met yet'}. "
        "The server could read sums only."
    )

    def draw(ax) -> None:
        for k, (name, values) in enumerate(losses.items()):
            places = np.arange(len(NAMES)) + 0.36 * (k - 0.5)
            bars = ax.bar(places, values, 0.34, color=(GRAY, BLUE)[k], label=name)
            ax.bar_label(bars, fmt="%.3f", fontsize="small", padding=2)
        ax.plot([-0.45, 0.45], [LIMIT, LIMIT], "--", color=RED, linewidth=1.8)
        ax.annotate("limit", (0.47, LIMIT), color=RED, va="center")
        ax.set_xticks(range(len(NAMES)), NAMES)
        ax.set_ylabel("mean loss on training rows")
        ax.margins(y=0.25)
        plain(ax)
        ax.grid(False, axis="x")
        ax.legend(frameon=False, loc="upper center", ncols=2)

    found = {"before": before, "after": after, "met": met, "sites": SITES}
    runs = {"free fit": free, "bounded": bounded}
    return Card("A limit on the loss of a group", sentence, draw, CODE, runs, found)


def _loss(table: data.Table, result: Result, group: str) -> float:
    """The mean loss over the rows of a group, computed here from the model alone."""
    w, x, y = np.asarray(result.solution), np.asarray(table.x), np.asarray(table.y)
    z = x @ w[:-1] + w[-1]
    return float(np.mean((np.logaddexp(0, z) - y * z)[y == NAMES.index(group)]))
