"""Audits where columns are split: what embeddings, their sums and gradients of blocks tell."""

import numpy as np
import pytest

import fedmin
from fedmin.reports.tables import left
from parted import CLASSES, FLAGS, K, N, Product, split

SIZES = (3, 1, 3)
MLP = fedmin.MLP(K, CLASSES, hidden=(4,))  # embeddings of four numbers; it begins at random
METHOD = fedmin.SplitSGD(0.4)


def audited(problem=MLP, labels="everyone", channel=fedmin.Plain(), sizes=SIZES, **options):
    options = {"batch": 5, "steps": 2, **options}
    return fedmin.audit(
        problem, split(sizes, labels=labels, classes=CLASSES), METHOD, channel, **options
    )


def test_narrow_blocks_are_computed_from_embeddings_and_not_from_their_sum():
    """Blocks of three columns, embeddings of four numbers: X_i = h_i pinv(W_i^T), exactly."""
    plain = audited(sizes=(1, 3, 3), observers=[("a",)]).of("a").outcome
    assert str(plain.rank) == "30 of 30"  # five rows of b's and c's six columns
    assert plain.best.attack == "closed form, columns"
    assert plain.best.psnr > 200
    # the sum of both has four equations a row for six unknowns
    how = {"channel": fedmin.SecureSum(), "sizes": (1, 3, 3), "observers": [("a",)]}
    hidden = audited(**how).of("a").outcome
    assert str(hidden.rank) == "20 of 30"
    assert hidden.best.psnr < 40


def test_a_server_with_the_labels_has_columns_and_gradients_fill_in():
    """h_i and G_i = S^T X_i: all but (B - rank S)(k - rank W) numbers, by plain least squares."""
    softmax = fedmin.Softmax(K, CLASSES)
    federation = split((5, 1, 1), labels="server")
    start = fedmin.minimize(softmax, federation, METHOD, rounds=1, progress=False).solution
    found = fedmin.audit(
        softmax, federation, METHOD, batch=5, rounds=1, steps=2, observers=[("server",)]
    )
    server = found.of("server").outcome
    z = np.asarray(federation.pool.x.values)
    rows = np.random.default_rng(0).permutation(N)[:5]
    W = start.reshape(CLASSES, K)[:, :5]
    logits = z[rows] @ start.reshape(CLASSES, K).T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    S = p / p.sum(axis=1, keepdims=True) - np.eye(CLASSES)[np.asarray(federation.pool.y)[rows]]
    r = np.linalg.matrix_rank
    # a's five columns; b's and c's one column each follows from h
    assert server.rank.rank == 25 - (5 - r(S)) * (5 - r(W)) + 10 < 35
    A = np.concatenate([np.kron(np.eye(5), W), np.kron(S.T, np.eye(5))])
    x = z[rows][:, :5].ravel()
    best = (np.linalg.pinv(A) @ (A @ x)).reshape(5, 5)
    np.testing.assert_allclose(server.best.rows[:, :5], best, atol=1e-6)
    np.testing.assert_allclose(server.best.rows[:, 5:], z[rows][:, 5:], atol=1e-6)


def test_who_has_no_blocks_computes_nothing_and_slopes_tell_labels():
    later = audited(rounds=1, observers=[("a",)]).of("a")
    assert later.sees == "each embedding, without the blocks"
    assert later.outcome.rank.rank == 0
    assert later.outcome.best.attack == "average row"
    # a client that is told slopes by the one with the labels
    softmax = audited(fedmin.Softmax(K, CLASSES), labels="b", observers=[("a",)]).of("a").outcome
    assert softmax.labels == 1.0 > softmax.labels_guess
    logistic = fedmin.audit(
        fedmin.Logistic(K), split(SIZES, FLAGS, labels="b", classes=2), METHOD, batch=6, steps=2,
        observers=[("a",)],
    )  # fmt: skip
    assert logistic.of("a").outcome.labels == 1.0


def test_the_server_without_labels_has_the_gradient_of_whole_rows():
    """Of one row it is that row, as on rows; with a client's embeddings the blocks open columns."""
    softmax = fedmin.Softmax(K, CLASSES)
    one = audited(softmax, batch=1, steps=5, observers=[("server",)]).of("server")
    assert one.victims == ("a", "b", "c")
    assert one.outcome.best.psnr > 60
    both = audited(rounds=1, observers=[("server", "a")]).of("server", "a").outcome
    assert both.rank.full
    assert both.best.psnr > 200


@pytest.mark.filterwarnings("ignore:privacy:UserWarning")
def test_sentences_and_refusals():
    found = audited(observers=[("a",)])
    (words,) = found.lines()
    assert "each embedding and the blocks" in words
    result = fedmin.minimize(MLP, split(SIZES), METHOD, rounds=1, progress=False)
    # what left each site, and what was inferred of it, on one page
    assert words.split(";")[0] in left({"one": found.beside(result)})
    federation = split(SIZES, FLAGS)
    product = Product(K, federation.roster().owners)
    with pytest.raises(ValueError, match="no linear first layer"):
        fedmin.audit(product, federation, METHOD, batch=2, steps=1)
    with pytest.raises(ValueError, match="everybody together holds all columns"):
        audited(observers=[("a", "b", "c")])
    with pytest.raises(ValueError, match="no observer 'z'"):
        audited(observers=[("z",)])
