"""The paper's data as federations: who holds which rows, 75 % to train and 25 % to test at each."""

import numpy as np

import fedmin
from fedmin import data

# Table 3 of the paper: rows a client. Its labels 0..9 cannot be ijcnn1's, which has two
LIBSVM_ROWS = (15045, 10660, 44295)


def held_out(x, y, parts, classes: int | None, seed: int = 0, share: float = 0.25):
    """A federation of these parts, a share of each client's rows together as test rows."""
    rng = np.random.default_rng(seed)
    train, test = [], []
    for part in parts:
        part = rng.permutation(part)
        cut = len(part) - int(share * len(part))
        train.append(part[:cut])
        test.append(part[cut:])
    last = np.concatenate(test)
    clients = [(x[part], y[part]) for part in train]
    return fedmin.Federation.from_clients(clients, test=(x[last], y[last]), classes=classes)


def mnist(rows: int | None = None) -> fedmin.Federation:
    """MNIST's 70,000 images by the authors' own table of labels, 20 clients."""
    table = data.load("mnist").merged()
    counts = data.CountTable.from_json(data.fetch("fedsso_mnist")["counts"].path)
    parts = counts(table, seed=0)
    if rows is not None:
        parts = [part[:: max(1, len(table.y) // rows)] for part in parts]
    return held_out(table.x, table.y, parts, 10)


def two_labels() -> fedmin.Federation:
    """MNIST, 20 clients with two labels each: harder than the authors' table."""
    table = data.load("mnist").merged()
    return held_out(table.x, table.y, data.LabelsPerClient(20, 2)(table, seed=0), 10)


def ijcnn1() -> fedmin.Federation:
    """ijcnn1 in file order, three clients whose sizes are as those of Table 3."""
    table = data.load("ijcnn1")
    ends = np.cumsum(LIBSVM_ROWS[:-1]) * table.rows // sum(LIBSVM_ROWS)
    return held_out(table.x, table.y, np.split(np.arange(table.rows), ends), 2)


def shakespeare(clients: int = 10, window: int = 5, stride: int = 5) -> fedmin.Federation:
    """The next character from the `window` before it; the speakers with the most text."""
    table = data.load("tinyshakespeare", window=window, stride=stride, test_fraction=0.0)
    _, group = np.unique(table.ids, return_inverse=True)
    most = np.argsort(-np.bincount(group), kind="stable")[:clients]
    codes = np.asarray(table.x, np.int32)
    x = np.zeros((len(codes), window * table.classes), np.float32)
    for place in range(window):
        x[np.arange(len(codes)), place * table.classes + codes[:, place]] = 1.0
    parts = [np.flatnonzero(group == who) for who in most]
    return held_out(x, table.y, parts, table.classes)


def digits() -> fedmin.Federation:
    """For a quick look: 1,797 small images, six clients with three labels each."""
    table = data.load("digits").merged()
    parts = data.LabelsPerClient(6, 3)(table, seed=0)
    return held_out(table.x, table.y, parts, 10)


def softmax(federation: fedmin.Federation) -> fedmin.Problem:
    """Softmax regression with biases; on MNIST the paper's 7,850 numbers."""
    return fedmin.Softmax(federation.pool.x.shape[1], federation.classes, bias=True)


def logistic(federation: fedmin.Federation) -> fedmin.Problem:
    """Logistic regression."""
    return fedmin.Logistic(federation.pool.x.shape[1])


def cnn(federation: fedmin.Federation) -> fedmin.Problem:
    """Two small convolutions: 6,300 numbers; the paper's has 6,230, by the bytes it counts."""
    return fedmin.CNN((28, 28, 1), 10, channels=(5, 10), hidden=())


WORLDS = {
    "mnist": (mnist, softmax),
    "mnist-two": (two_labels, softmax),
    "mnist-cnn": (mnist, cnn),
    "ijcnn1": (ijcnn1, logistic),
    "shakespeare": (shakespeare, softmax),
    "digits": (digits, softmax),
}
