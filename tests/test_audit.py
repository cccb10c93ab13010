"""Audits: what can be rebuilt from a message is rebuilt, and what cannot be is said to be so."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import fedmin
import fedmin.reports
from fedmin.assembling import assemble
from fedmin.cli import app as cli
from fedmin.core.kept import DamagedError
from fedmin.core.privacy import Privacy
from fedmin.engines.auditing import cut
from fedmin.engines.observing import Scene, first_states
from fedmin.privacy.audit import inversion
from fedmin.privacy.audit.attack import Effort, Public, Target, attacked
from masks import PairwiseMasks

RNG = np.random.default_rng(11)
CLIENTS = [(RNG.uniform(0, 1, (4, 9)), RNG.integers(0, 3, 4)) for _ in range(3)]
WORLD = fedmin.Federation.from_clients(CLIENTS, names=list("abc"), classes=3)
SOFTMAX = fedmin.Softmax(9, 3)
FULL = fedmin.FedSGD(0.1, batches=fedmin.Full())


def test_a_gradient_of_one_row_is_that_row_and_its_label():
    found = fedmin.audit(SOFTMAX, WORLD, FULL, batch=1, steps=20, observers=[("server",)])
    outcome = found.of("server").outcome
    assert outcome.rank.full
    assert outcome.best.psnr > 100 > outcome.guess + 60
    assert outcome.labels == 1.0


@pytest.mark.parametrize(("batch", "rank"), [(2, 18), (3, 18), (4, 18)])
def test_rank_against_the_count_of_equations(batch, rank):
    """A softmax gradient has 3 x 9 numbers whose rows add up to zero: 18 equations."""
    few = fedmin.audit(SOFTMAX, WORLD, FULL, batch=batch, steps=1, observers=[("server",)])
    found = few.of("server").outcome.rank
    assert (found.rank, found.unknowns) == (rank, 9 * batch)
    assert found.full == (9 * batch <= rank)


def test_a_sum_has_more_unknowns_and_accomplices_take_them_away():
    found = fedmin.audit(
        SOFTMAX, WORLD, FULL, PairwiseMasks(), batch=1, steps=5,
        observers=[("server",), ("server", "a", "b")],
    )  # fmt: skip
    alone, together = found.of("server"), found.of("server", "a", "b")
    assert alone.victims == ("a", "b", "c")
    assert (alone.outcome.rank.rank, alone.outcome.rank.unknowns) == (18, 27)
    assert together.victims == ("c",)
    assert together.outcome.rank.full
    # all but one betray the last one, whatever hides the sum: to the integers' rounding
    assert together.outcome.best.psnr > 60 > alone.outcome.best.psnr


def test_a_client_sees_the_others_in_what_it_is_told_next():
    found = fedmin.audit(SOFTMAX, WORLD, FULL, batch=1, steps=1, observers=[("a",)])
    finding = found.of("a")
    assert finding.victims == ("b", "c")
    assert (finding.outcome.rank.rank, finding.outcome.rank.unknowns) == (18, 18)


def scene(problem, method, batch=1):
    few = fedmin.Federation.from_clients([(x[:batch], y[:batch]) for x, y in CLIENTS], classes=3)
    run = assemble(problem, few, method, fedmin.Everyone(), fedmin.Plain(), None, None)
    return Scene(run, few, first_states(run, few, 0), 0, 0)


def test_the_first_atom_over_an_l2_ball_is_the_gradient_and_over_l1_an_index():
    """METHODS.md 7.5: the paper's claim that l2 atoms leak less fails in round 1."""
    method = fedmin.FedFW(0.1)
    views = {
        name: scene(fedmin.over(SOFTMAX, ball), method).server_sees(0)
        for name, ball in {"l2": fedmin.L2Ball(10.0), "l1": fedmin.L1Ball(10.0)}.items()
    }
    gradient = scene(SOFTMAX, FULL).server_sees(0).seen
    l2, l1 = views["l2"].seen[:27], views["l1"].seen[:27]
    cosine = l2 @ gradient / np.linalg.norm(l2) / np.linalg.norm(gradient)
    assert cosine == pytest.approx(-1, abs=1e-9)
    assert np.count_nonzero(l1) == 1
    true = CLIENTS[0][0][:1]
    rows = [inversion.first_layer_rows(seen, 3, 9) for seen in (l2, l1)]
    exact, little = (inversion.nearest(each, true, 1.0).psnr for each in rows)
    assert exact > 150 > 20 > little
    label = jnp.asarray(CLIENTS[0][1][:1])
    index = lambda z, y: views["l1"].message(z[None], y[None])[:27]
    assert inversion.rank_of(index, jnp.asarray(true), label).rank == 0


def test_matching_rebuilds_what_an_l2_atom_was_chosen_by():
    place = scene(fedmin.over(fedmin.MLP(9, 3, hidden=(12,)), fedmin.L2Ball(9.0)), fedmin.FedFW())
    view = place.server_sees(0)
    z, y = place.held(view)
    one = lambda f: lambda a, b: f(a[None], b[None])
    target = Target(one(view.message), view.seen, z[0], y[0], one(view.behind))
    public = Public(np.full(9, 0.5), (0.0, 1.0), 3, 0)
    outcome = attacked(target, public, Effort(60, starts=0, directions=0))
    assert outcome.best.attack == "matching what is behind the atom, cosine"
    assert outcome.best.psnr > outcome.guess + 10
    assert str(outcome.rank) == "not measured"


GROUPED = fedmin.Federation.from_clients(
    [(x, y, np.array(["old", "young"])[[0, 1, 1, 0]]) for x, y in CLIENTS], names=list("abc"),
    classes=3, group_names=["old", "young"],
)  # fmt: skip


@pytest.mark.parametrize("by", ["groups", "labels"])
def test_limits_on_groups_are_audited_by_what_they_make_of_a_reply(by):
    """The reply has the loss and the gradient of each group; all of it follows from the rows, and
    in the first round it is known how: by the groups' shares of all rows, not of a batch."""
    limits = {"old": 0.9, "young": 0.8} if by == "groups" else {"0": 0.9, "2": 0.8}
    problem = fedmin.subject_to(SOFTMAX, fedmin.GroupLossAtMost(limits, by=by))
    method = fedmin.SSCA(batches=fedmin.Full())
    federation = GROUPED if by == "groups" else WORLD
    found = fedmin.audit(problem, federation, method, batch=1, steps=20, observers=[("server",)])
    outcome = found.of("server").outcome
    assert outcome.rank.full
    assert outcome.best.psnr > outcome.guess + 30
    # NumPy: at the model of zeros each label has a chance of 1/3, so the loss is ln 3 everywhere
    run = assemble(problem, federation, method, fedmin.Everyone(), fedmin.Plain(), None, None)
    few = cut(federation, 1, 0)
    place = Scene(run, few, first_states(run, few, 0), 0, 0)
    view = place.server_sees(0)
    z, y = place.held(view)
    np.testing.assert_allclose(view.message(z, y), view.seen, rtol=1e-6, atol=1e-7)
    own = int(np.asarray(few.client(0).group)[0]) if by == "groups" else int(y[0, 0])
    whole = np.concatenate([g for _, _, g in _groups(federation, by)])
    numbers = {"old": 0, "young": 1, "0": 0, "2": 2}
    for name, bound in limits.items():  # times p_i = 1/3
        share = np.mean(whole == numbers[name])
        value = (np.log(3) - bound) / share / 3 if own == numbers[name] else 0.0
        assert np.isclose(view.seen, value, rtol=1e-5, atol=1e-12).any()


def _groups(federation, by):
    for i in range(3):
        rows = federation.client(i)
        yield rows.x, rows.y, np.asarray(rows.group if by == "groups" else rows.y)


def test_mixtures_count_labels():
    rng = np.random.default_rng(0)
    dictionary = rng.standard_normal((5, 40))
    wanted = [0, 2, 2, 2, 4, 4]
    seen = 0.3 * dictionary[wanted].sum(axis=0)
    assert inversion.mixture(dictionary, seen, 6).tolist() == wanted
    assert inversion.labels_right([1, 1, 2], [1, 2, 2]) == pytest.approx(2 / 3)


def test_the_page_and_the_command(tmp_path):
    file, out, numbers = (tmp_path / n for n in ("run.toml", "audit.html", "audit.json"))
    file.write_text(
        '[data]\nname = "wine"\n[partition]\nname = "iid"\nclients = 2\n'
        '[problem]\nname = "softmax"\n[method]\nname = "fedsgd"\n[run]\nrounds = 1\n'
    )
    say = ["audit", str(file), "--batch", "1", "--steps", "2", "--out", str(out)]
    outcome = CliRunner().invoke(cli.app, [*say, "--numbers", str(numbers)])
    assert outcome.exit_code == 0, outcome.output
    page = out.read_text("utf-8")
    assert "Who could infer what" in page
    assert "<svg" in page
    words = json.loads(numbers.read_text("utf-8"))
    assert [each["observers"] for each in words["findings"]] == [["server"], ["0"]]
    outcome = CliRunner().invoke(cli.app, [*say, "--image", "3"])
    assert outcome.exit_code == 2
    assert "height,width,channels" in outcome.output


def test_what_cannot_be_audited_is_refused():
    x, y = np.ones((4, 4)), np.zeros(4)
    by_column = fedmin.GroupLossAtMost({"0": 0.5, "1": 0.5}, column=2)
    with pytest.raises(ValueError, match=r"in no group of a column: .* by='groups'"):
        fedmin.audit(fedmin.subject_to(SOFTMAX, by_column), WORLD, fedmin.SSCA())
    split = fedmin.Federation.from_columns(x, y, [[0, 1], [2, 3]], groups=["a", "b", "a", "b"])
    with pytest.raises(ValueError, match="audit the same columns without groups"):
        fedmin.audit(fedmin.LeastSquares(4), split, fedmin.SplitSGD(0.1))
    for observers, words in (
        ([("d",)], "no observer 'd': there are server, a, b, c"),
        ([("server", "a", "b", "c")], "nothing to infer"),
    ):
        with pytest.raises(ValueError, match=words):
            fedmin.audit(SOFTMAX, WORLD, FULL, batch=1, steps=1, observers=observers)
    with pytest.raises(ValueError, match="client a has 4 rows, fewer than a batch of 5"):
        fedmin.audit(SOFTMAX, WORLD, FULL, batch=5)


# ---------------------------------------------------------------- result.privacy


@pytest.mark.parametrize(("channel", "sums"), [(fedmin.Plain(), False), (PairwiseMasks(), True)])
def test_every_result_says_who_learnt_what(tmp_path, channel, sums):
    result = fedmin.minimize(
        SOFTMAX, WORLD, FULL, rounds=2, channel=channel, engine=fedmin.Loopback()
    )
    privacy = result.privacy
    assert (privacy.sums, privacy.cohort, privacy.epsilon) == (sums, 3, {})
    reply = next(s for s in privacy.leaving if s.when == "training" and "gradient" in s.parts)
    assert reply.individual == (not sums)
    assert result.shown == fedmin.Result.load(result.save(tmp_path)).shown
    page = fedmin.reports.page("one", {"run": result})
    assert "What left each site" in page
    assert ("a sum" if sums else "an individual value") in page


def test_epsilon_comes_from_the_history_and_an_audit_can_be_added():
    result = fedmin.minimize(SOFTMAX, WORLD, FULL, rounds=2)
    spent = result.shown.spending({"epsilon_row": np.array([0.0, 1.5]), "objective": [1.0]})
    assert spent.epsilon == {"row": 1.5}
    assert "epsilon: 1.5 for a row" in str(spent)
    said = result.shown.audited(["audit: nothing"])
    assert str(said).endswith("audit: nothing")


def test_damaged_words_of_privacy_are_refused(tmp_path):
    good = fedmin.minimize(SOFTMAX, WORLD, FULL, rounds=1).shown.words()
    good = json.loads(json.dumps(good))
    assert Privacy.of(tmp_path, good).words()["shown"]
    for damage in ({"shown": [["x"]]}, {"cohort": "3"}, {"sums": None}):
        with pytest.raises(DamagedError):
            Privacy.of(tmp_path, good | damage)
