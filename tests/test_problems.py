"""Values, gradients and curvature of every problem, against differences, NumPy and scikit-learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.special
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import fedmin
from fedmin.problems import PROBLEMS
from fedmin.problems.linear import Linear
from fedmin.problems.network import convolve_pool

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((11, 4))
V = RNG.random(11) + 0.1
NUMBERS = RNG.standard_normal(11)
LABELS = RNG.integers(0, 3, 11)
IMAGES = RNG.standard_normal((3, 8 * 8 * 2))


def rows(y, z=Z, weight=V) -> fedmin.Rows:
    return jax.tree.map(jnp.asarray, fedmin.rows(z, y, weight))


def squared(params, z, y):
    return 0.5 * (params["w"] @ z - y) ** 2


CASES = {
    "leastsquares": (fedmin.LeastSquares(4, l2=0.2), rows(NUMBERS)),
    "leastsquares_bias": (fedmin.LeastSquares(4, l2=0.2, bias=True), rows(NUMBERS)),
    "huber": (fedmin.Huber(4, l2=0.2, delta=0.3), rows(NUMBERS)),
    "poisson": (fedmin.Poisson(4, l2=0.1), rows(LABELS)),
    "logistic": (fedmin.Logistic(4, l2=0.1), rows(LABELS % 2)),
    "logistic_bias": (fedmin.Logistic(4, bias=True), rows(LABELS % 2)),
    "softmax": (fedmin.Softmax(4, 3, l2=0.1), rows(LABELS)),
    "softmax_bias": (fedmin.Softmax(4, 3, l2=0.1, bias=True), rows(LABELS)),
    "mlp": (fedmin.MLP(4, 3, hidden=(5,), l2=0.1), rows(LABELS)),
    "mlp_deep": (fedmin.MLP(4, 3, hidden=(3, 2), bias=True, activation=jnp.tanh), rows(LABELS)),
    "cnn": (
        fedmin.CNN((8, 8, 2), 3, channels=(2,), kernel=3, hidden=(3,), l2=0.1),
        rows(LABELS[:3], IMAGES, V[:3]),
    ),
    "completion": (
        fedmin.MatrixCompletion(3, 4, l2=0.1),
        rows(NUMBERS, np.stack(np.divmod(np.arange(11), 4), axis=1).astype(float)),
    ),
    "lenet": (fedmin.LeNet((32, 32, 1), 2), rows([0, 1], RNG.random((2, 1024)), np.ones(2))),
    "loss": (fedmin.from_loss(squared, {"w": jnp.ones(4)}, l2=0.3), rows(NUMBERS)),
}
SMALL = {name: case for name, case in CASES.items() if name != "lenet"}


def point(problem: fedmin.Problem, seed: int = 1) -> jax.Array:
    return 0.5 * jnp.asarray(np.random.default_rng(seed).standard_normal(problem.size()))


def test_every_problem_is_tested():
    assert {type(p) for p, _ in CASES.values()} >= {
        kind for kind in PROBLEMS.values() if isinstance(kind, type)
    }


@pytest.mark.parametrize("name", SMALL)
def test_gradient_by_differences(name):
    problem, data = SMALL[name]
    value, grad = eqx.filter_jit(problem.value), eqx.filter_jit(problem.grad)
    x = np.asarray(point(problem))
    wrong = scipy.optimize.check_grad(
        lambda u: float(value(u, data)), lambda u: np.asarray(grad(u, data)), x, epsilon=1e-7
    )
    assert wrong < 2e-5


@pytest.mark.parametrize("name", SMALL)
def test_curvature_by_differences(name):
    problem, data = SMALL[name]
    x, v = point(problem), point(problem, 2)
    grad = eqx.filter_jit(problem.grad)
    around = (grad(x + 1e-6 * v, data) - grad(x - 1e-6 * v, data)) / 2e-6
    product = eqx.filter_jit(problem.hvp)(x, v, data)
    np.testing.assert_allclose(product, around, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_rows_of_no_weight_do_not_count(name):
    """Even if they hold huge numbers: padding is never looked at."""
    problem, data = CASES[name]
    x = point(problem) * 0.1
    huge = np.full((2, data.x.shape[1]), 1e150)
    padded = rows(
        np.concatenate([np.asarray(data.y), np.asarray(data.y)[:2]]),
        np.concatenate([np.asarray(data.x.values), huge]),
        np.concatenate([np.asarray(data.weight), np.zeros(2)]),
    )
    grad, value = eqx.filter_jit(problem.grad), eqx.filter_jit(problem.value)
    np.testing.assert_allclose(value(x, padded), value(x, data), rtol=1e-12)
    np.testing.assert_allclose(grad(x, padded), grad(x, data), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_a_weight_of_two_is_the_row_twice(name):
    problem, data = SMALL[name]
    x, ones = point(problem), np.ones(data.count)
    doubled = eqx.tree_at(lambda r: r.weight, data, jnp.asarray(ones).at[1].set(2.0))
    order = np.append(np.arange(data.count), 1)
    twice = rows(np.asarray(data.y)[order], np.asarray(data.x.values)[order], np.ones(len(order)))
    value = eqx.filter_jit(problem.value)
    np.testing.assert_allclose(value(x, doubled), value(x, twice), rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["leastsquares_bias", "huber", "poisson", "logistic", "softmax_bias", "mlp"]
)
def test_sparse_is_dense(name):
    problem, data = CASES[name]
    z = np.where(np.abs(Z) > 0.7, Z, 0.0)
    y, weight = np.asarray(data.y), np.asarray(data.weight)
    dense, sparse = rows(y, z, weight), rows(y, scipy.sparse.csr_matrix(z), weight)
    x, v = point(problem), point(problem, 2)
    for f in (problem.value, problem.grad, lambda u, r: problem.hvp(u, v, r)):
        f = eqx.filter_jit(f)
        np.testing.assert_allclose(f(x, sparse), f(x, dense), rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- closed forms


def mean(each: np.ndarray) -> float:
    return float(V @ each / V.sum())


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("l2", [None, 0.3])
@pytest.mark.parametrize("name", SMALL)
def test_a_step_is_a_step_along_the_gradient(name, l2, kind):
    """Whatever way a problem takes, with and without a regularizer."""
    problem, data = SMALL[name]
    problem = eqx.tree_at(lambda p: p.l2, problem, l2, is_leaf=lambda leaf: leaf is None)
    if kind == "sparse":
        if not isinstance(problem, Linear | fedmin.Softmax):
            pytest.skip("dense rows only")
        sparse = fedmin.matrix(scipy.sparse.csr_matrix(np.where(Z > 0, Z, 0)))
        data = fedmin.Rows(jax.tree.map(jnp.asarray, sparse), data.y, data.weight)
    x = point(problem)
    gradient = jax.grad(problem.value)(x, data)
    stepped = eqx.filter_jit(problem.step)(x, data, 0.7)
    np.testing.assert_allclose(stepped, x - 0.7 * gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_a_gradient_in_pieces_is_the_gradient(name, monkeypatch):
    problem, data = SMALL[name]
    x, v = point(problem), point(problem, 2)
    whole = jax.grad(problem.value)(x, data)
    monkeypatch.setattr(type(problem), "window", 2)
    np.testing.assert_allclose(problem.grad(x, data), whole, rtol=1e-9, atol=1e-12)
    curved = jax.jvp(lambda u: jax.grad(problem.value)(u, data), (x,), (v,))[1]
    np.testing.assert_allclose(problem.hvp(x, v, data), curved, rtol=1e-8, atol=1e-12)


def test_least_squares_by_hand():
    problem, data = CASES["leastsquares_bias"]
    x = np.asarray(point(problem))
    value = mean(0.5 * (Z @ x[:4] + x[4] - NUMBERS) ** 2) + 0.1 * x[:4] @ x[:4]
    assert problem.value(jnp.asarray(x), data) == pytest.approx(value, rel=1e-12)


def test_logistic_by_hand():
    problem, data = CASES["logistic"]
    x = np.asarray(point(problem))
    signs = 2 * (LABELS % 2) - 1
    value = mean(np.log1p(np.exp(-signs * (Z @ x)))) + 0.05 * x @ x
    assert problem.value(jnp.asarray(x), data) == pytest.approx(value, rel=1e-12)
    right = ((Z @ x > 0) == (LABELS % 2 == 1)).astype(float)
    np.testing.assert_array_equal(problem.scores(jnp.asarray(x), data)["accuracy"], right)


def test_softmax_by_hand():
    problem, data = CASES["softmax_bias"]
    x = np.asarray(point(problem))
    W, b = x[:12].reshape(3, 4), x[12:]
    odds = np.exp(Z @ W.T + b)
    chosen = odds[np.arange(11), LABELS] / odds.sum(axis=1)
    value = mean(-np.log(chosen)) + 0.05 * np.sum(W**2)
    assert problem.value(jnp.asarray(x), data) == pytest.approx(value, rel=1e-12)
    right = (np.argmax(odds, axis=1) == LABELS).astype(float)
    np.testing.assert_array_equal(problem.scores(jnp.asarray(x), data)["accuracy"], right)


def test_mlp_by_hand():
    """One hidden layer, swish, no biases: the network of the SSCA papers."""
    problem, data = CASES["mlp"]
    x = np.asarray(point(problem))
    A, B = x[:20].reshape(5, 4), x[20:].reshape(3, 5)
    h = Z @ A.T
    logits = h / (1 + np.exp(-h)) @ B.T
    np.testing.assert_allclose(problem.predict(jnp.asarray(x), data), logits, rtol=1e-12)
    value = mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(11), LABELS])
    assert problem.value(jnp.asarray(x), data) == pytest.approx(value + 0.05 * x @ x, rel=1e-12)


def test_large_logits_do_not_overflow():
    data = rows(LABELS % 2, 1e4 * Z)
    for problem in (fedmin.Logistic(4), fedmin.Softmax(4, 2)):
        x = jnp.ones(problem.size())
        assert np.isfinite(eqx.filter_jit(problem.value)(x, data))
        assert np.isfinite(eqx.filter_jit(problem.grad)(x, data)).all()


# ---------------------------------------------------------------- other people's optima


def minimized(problem, data) -> np.ndarray:
    value, grad = eqx.filter_jit(problem.value), eqx.filter_jit(problem.grad)
    found = scipy.optimize.minimize(
        lambda u: float(value(u, data)),
        np.zeros(problem.size()),
        jac=lambda u: np.asarray(grad(u, data)),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    return found.x


def test_ridge_optimum():
    problem, data = CASES["leastsquares_bias"]
    x = minimized(problem, data)
    model = Ridge(alpha=0.2 * V.sum(), tol=1e-12).fit(Z, NUMBERS, sample_weight=V)
    np.testing.assert_allclose(x, [*model.coef_, model.intercept_], atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_poisson_regression_optimum(bias):
    problem, data = fedmin.Poisson(4, l2=0.1, bias=bias), rows(LABELS)
    model = PoissonRegressor(alpha=0.1, fit_intercept=bias, tol=1e-12, max_iter=9999)
    model.fit(Z, LABELS, sample_weight=V)
    expected = np.append(model.coef_, model.intercept_ if bias else [])
    np.testing.assert_allclose(minimized(problem, data), expected, atol=1e-6)


def test_huber_and_poisson_by_hand():
    problem, data = CASES["huber"]
    x = np.asarray(point(problem))
    each = scipy.special.huber(0.3, Z @ x - NUMBERS)
    expected = mean(each) + 0.1 * x @ x
    np.testing.assert_allclose(problem.value(x, data), expected, rtol=1e-12)
    far = fedmin.Poisson(1).loss(jnp.array([79.0, 80.0, 81.0]), jnp.zeros(3)) / np.exp(80.0)
    np.testing.assert_allclose(far, [np.exp(-1), 1.0, 2.0], rtol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_logistic_regression_optimum(bias):
    problem, data = fedmin.Logistic(4, l2=0.1, bias=bias), rows(LABELS % 2)
    model = LogisticRegression(C=1 / (0.1 * V.sum()), fit_intercept=bias, tol=1e-12, max_iter=9999)
    model.fit(Z, LABELS % 2, sample_weight=V)
    expected = np.append(model.coef_.ravel(), model.intercept_ if bias else [])
    np.testing.assert_allclose(minimized(problem, data), expected, atol=1e-6)


def test_multinomial_optimum():
    problem, data = CASES["softmax"]
    model = LogisticRegression(C=1 / (0.1 * V.sum()), fit_intercept=False, tol=1e-12, max_iter=9999)
    model.fit(Z, LABELS, sample_weight=V)
    np.testing.assert_allclose(minimized(problem, data).reshape(3, 4), model.coef_, atol=1e-6)


# ---------------------------------------------------------------- networks


@pytest.mark.parametrize(("kernel", "padding"), [(3, 1), (5, 2), (2, 1), (4, 0), (1, 0)])
@pytest.mark.parametrize("shape", [(6, 7), (5, 5)])
def test_patches_are_a_pooled_convolution(kernel, padding, shape, rng):
    """Against XLA's convolution and pooling, and one channel by SciPy; odd ends are dropped."""
    images = rng.standard_normal((2, *shape, 3))
    filters, bias = rng.standard_normal((4, kernel, kernel, 3)), rng.standard_normal(4)
    weights = [jnp.asarray(filters.reshape(4, -1)), jnp.asarray(bias)]
    ours = convolve_pool(jnp.asarray(images), weights, kernel, padding)
    assert not weights, "it takes its weights off the list"
    xla = jax.lax.conv_general_dilated(
        jnp.asarray(images), jnp.asarray(filters), (1, 1), [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
    )  # fmt: skip
    window = (1, 2, 2, 1)
    xla = jax.lax.reduce_window(xla + bias, -jnp.inf, jax.lax.max, window, window, "VALID")
    np.testing.assert_allclose(ours, xla, rtol=1e-10, atol=1e-10)
    wide = np.pad(images[0], ((padding, padding), (padding, padding), (0, 0)))
    by_hand = bias[1] + sum(
        scipy.signal.correlate2d(wide[:, :, c], filters[1, :, :, c], mode="valid") for c in range(3)
    )
    h, w = (n // 2 * 2 for n in by_hand.shape)
    pooled = by_hand[:h, :w].reshape(h // 2, 2, w // 2, 2).max(axis=(1, 3))
    np.testing.assert_allclose(ours[0, :, :, 1], pooled, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("problem", "size"),
    [
        (fedmin.LeNet((32, 32, 3), 10), 62006),  # LeNet-5 on CIFAR, as counted everywhere
        (fedmin.LeNet((28, 28, 1), 10), 61706),
        (fedmin.CNN((28, 28, 1), 62, channels=(32, 64), hidden=(2048,)), 6_603_710),  # LEAF
        (fedmin.MLP(784, 10, hidden=(200, 200), bias=True), 199_210),  # McMahan's 2NN
    ],
    ids=["lenet_cifar", "lenet_mnist", "leaf", "2nn"],
)
def test_well_known_sizes(problem, size):
    assert problem.size() == size
    assert jax.eval_shape(problem.init, jax.random.key(0)).shape == (size,)


def test_cnn_is_the_network_it_says():
    """Against XLA's own convolution and pooling, relu before pooling as it is usually written."""
    problem, data = CASES["cnn"]
    x = problem.init(jax.random.key(2)) + 0.1 * point(problem)
    edges = np.cumsum([0, *(int(np.prod(s)) for s in problem.shapes)])
    parts = [
        np.asarray(x[a:b]).reshape(s)
        for a, b, s in zip(edges, edges[1:], problem.shapes, strict=False)
    ]
    K, k, A, a, B, b = (jnp.asarray(part) for part in parts)
    h = jax.lax.conv_general_dilated(
        data.x.values.reshape(3, 8, 8, 2), K.reshape(2, 3, 3, 2), (1, 1), "SAME",
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
    )  # fmt: skip
    h = jax.nn.relu(h + k)
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    logits = jax.nn.relu(h.reshape(3, -1) @ A.T + a) @ B.T + b
    ours = eqx.filter_jit(problem.predict)(x, data)
    np.testing.assert_allclose(ours, logits, rtol=1e-10, atol=1e-12)


def test_start_of_a_network():
    problem = fedmin.MLP(400, 10, hidden=(300,), bias=True)
    x = np.asarray(problem.init(jax.random.key(0)))
    assert np.std(x[: 400 * 300]) == pytest.approx(np.sqrt(2 / 400), rel=0.02)
    assert (x[400 * 300 : 400 * 300 + 300] == 0).all()
    assert not np.array_equal(x, problem.init(jax.random.key(1)))


# ---------------------------------------------------------------- any JAX loss


def test_a_plain_function_is_the_built_in_problem():
    ours, data = fedmin.LeastSquares(4, l2=0.3), rows(NUMBERS)
    theirs = fedmin.from_loss(squared, {"w": jnp.zeros(4)}, l2=0.3)
    x, v = point(ours), point(ours, 2)

    @eqx.filter_jit
    def everything(p):
        return p.value(x, data), p.grad(x, data), p.hvp(x, v, data)

    for a, b in zip(everything(theirs), everything(ours), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def entropy(model, z, y):
    return -jax.nn.log_softmax(model(z))[y]


def right(model, z, y):
    return jnp.argmax(model(z)).astype(y.dtype) == y


def test_an_equinox_model_is_the_built_in_network():
    model = eqx.nn.MLP(4, 3, 5, 1, activation=jax.nn.swish, key=jax.random.key(0))
    ours, data = fedmin.MLP(4, 3, hidden=(5,), bias=True), rows(LABELS)
    theirs = fedmin.from_loss(entropy, model, score=right)
    assert theirs.size() == ours.size()
    x = theirs.init(jax.random.key(0))
    (value, slope), (value_2, slope_2) = (
        eqx.filter_jit(lambda u, r, p=p: (p.value(u, r), p.grad(u, r)))(x, data)
        for p in (ours, theirs)
    )
    np.testing.assert_allclose(value_2, value, rtol=1e-10)
    np.testing.assert_allclose(slope_2, slope, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(
        theirs.scores(x, data)["accuracy"], ours.scores(x, data)["accuracy"]
    )
    back = theirs.params(x)
    assert isinstance(back, eqx.nn.MLP)
    np.testing.assert_array_equal(back(data.x.values[0]), model(data.x.values[0]))


def test_rows_in_a_shape_of_their_own():
    sums = fedmin.from_loss(lambda p, z, y: p * jnp.sum(z[:, 0]), jnp.ones(1)[0], row_shape=(2, 2))
    value = sums.value(jnp.ones(1), rows(NUMBERS))
    assert value == pytest.approx(mean(Z[:, 0] + Z[:, 2]), rel=1e-12)


class Two(fedmin.Problem):
    """An objective and one constraint, |x|^2 <= mean of y."""

    def init(self, key):
        return jnp.ones(4)

    def losses(self, x, rows):
        return jnp.stack([0.5 * (rows.x @ x - rows.y) ** 2, x @ x - rows.y], axis=1)

    @property
    def num_constraints(self):
        return 1


def test_constraints_are_means_too():
    x, data = jnp.arange(4.0), rows(NUMBERS)
    problem = Two()
    assert problem.value(x, data) == pytest.approx(mean(0.5 * (Z @ np.arange(4.0) - NUMBERS) ** 2))
    np.testing.assert_allclose(problem.constraints(x, data), [14 - mean(NUMBERS)], rtol=1e-12)
    np.testing.assert_allclose(problem.jacobian(x, data), [2 * np.arange(4.0)], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fedmin.from_loss("loss", {"w": jnp.ones(2)}), "loss must be a function"),
        (lambda: fedmin.from_loss(squared, {"n": 3}), "no array of floating-point"),
        (lambda: fedmin.from_loss(squared, {"w": jnp.ones(2)}, l2=-1.0), "l2 must be at least 0"),
        (
            lambda: fedmin.from_loss(lambda p, z, y: p * z, jnp.ones(4)).value(
                jnp.ones(4), rows(NUMBERS)
            ),
            "one number a row",
        ),
        (
            lambda: CASES["cnn"][0].predict(
                point(CASES["cnn"][0]), rows(LABELS[:3], scipy.sparse.csr_matrix(IMAGES), V[:3])
            ),
            "CNN needs dense rows, got SparseRows",
        ),
        (lambda: fedmin.CNN((4, 4, 1), 2, channels=(2, 2, 2)), "too small for 3 poolings"),
        (lambda: fedmin.CNN((8, 8), 2), r"image must be \(height, width, channels\)"),
        (lambda: fedmin.CNN((8, 8, 1), 2, same=(True,)), "same must be one flag a convolution"),
        (lambda: fedmin.MLP(4, 1), "classes must be at least 2, got 1"),
        (lambda: fedmin.MLP(4, 2, hidden=(0,)), "hidden must be at least 1, got 0"),
        (lambda: fedmin.Softmax(0, 2), "features must be at least 1, got 0"),
        (lambda: fedmin.Huber(3, delta=0.0), "delta must be more than 0"),
        (lambda: fedmin.Poisson(3).check(3, None, np.array([1.0, -2.0])), "row 1 has -2.0"),
        (lambda: fedmin.Huber(3).check(3, None, np.ones((2, 2))), "Huber needs one number a row"),
        (lambda: fedmin.Logistic(4, l2=float("nan")), "l2 must be at least 0"),
    ],
)  # fmt: skip
def test_wrong_problems_say_so(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()


def test_the_old_name_of_ridge_weight_is_refused():
    """A problem written for it would silently be solved without its regularizer."""
    with pytest.raises(TypeError, match=r"Old\.curvature is called ridge_weight now"):

        class Old(fedmin.LeastSquares):
            def curvature(self):
                return 0.5

    class Fields(fedmin.Problem):
        curvature: float = 1.0  # a number of one's own may be called so

    class Still(Fields):
        def ridge_weight(self):
            return 0.5

    assert Fields.__dataclass_fields__["curvature"].default == 1.0
    assert Still.ridge_weight is not Fields.ridge_weight
    assert fedmin.LeastSquares(3, l2=0.5).ridge_weight() == pytest.approx(0.25)


def test_a_loss_of_ones_own_predicts(rng):
    """As the user's function says, in the words of its link; and it may be declared convex."""

    def logit(p, z):
        return p["weights"] @ z + p["bias"]

    def lost(p, z, y):
        return jax.nn.softplus(jnp.where(y == 1, -logit(p, z), logit(p, z)))

    start = {"weights": jnp.zeros(3), "bias": jnp.zeros(())}
    own = fedmin.from_loss(lost, start, predict=logit, link="logit", features=3, convex=True)
    assert own.convex
    assert not fedmin.from_loss(lost, start).convex
    z = rng.normal(size=(40, 3))
    federation = fedmin.Federation.from_clients([(z, (z[:, 0] > 0).astype(int))])
    ended = [
        fedmin.minimize(problem, federation, fedmin.FedSGD(1.0), rounds=5).model
        for problem in (own, fedmin.Logistic(3, bias=True))
    ]
    for name in ("scores", "predict", "predict_proba"):
        ours, theirs = (getattr(model, name)(z) for model in ended)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    wide = fedmin.Federation.from_clients([(np.ones((4, 5)), np.ones(4, int))])
    with pytest.raises(ValueError, match="features=3"):
        fedmin.minimize(own, wide, fedmin.FedSGD(), rounds=1)
    with pytest.raises(ValueError, match="length of a row"):
        fedmin.from_loss(lost, start, predict=logit)
    with pytest.raises(ValueError, match="link"):
        fedmin.from_loss(lost, start, predict=logit, features=3, link="probit")
    several = fedmin.from_loss(lost, start, predict=logit, features=3, link="softmax")
    with pytest.raises(ValueError, match="a logit a class"):
        _ = several.classes
