"""A site's policy and the guard of a site: what it refuses, and what it writes down."""

import functools
import os
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

import fedmin
import known
import masks
from agreement import run
from fedmin.assembling import assemble
from fedmin.core.channel import Learns
from fedmin.engines.round import SERVER, Run
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.guarded import GuardedSite, PolicyError
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.transports import memory
from fedmin.privacy.departures import Departures, read, sums
from fedmin.privacy.policy import Policy, modules_in
from parted import split

WORLD = known.apart(sizes=(4, 3, 5))
ROSTER = WORLD.federation.roster()
PARTED, WITH_ONE = (
    SimpleNamespace(problem=fedmin.Softmax(7, 3), federation=split((3, 1, 3), labels=who))
    for who in ("everyone", "b")
)
METHOD = fedmin.Scaffold(0.3, local_steps=2, batches=fedmin.Blocks(2))


class Hidden(fedmin.Channel):
    """A channel that shows sums of at least three only, by its own word."""

    lossless = True

    @property
    def learns(self) -> Learns:
        return Learns(each=False, least=3)


def built(
    method=METHOD, problem=None, channel=None, part=None, record=None, certificate=False
) -> Run:
    return assemble(
        WORLD.problem if problem is None else problem, WORLD.federation, method,
        part or fedmin.Everyone(), channel or fedmin.Plain(), record or [fedmin.Objective()], None,
        certificate=certificate,
    )  # fmt: skip


def own_loss(x, rows):
    return rows.x @ x


# ---------------------------------------------------------------- what a policy refuses


LIMITED = fedmin.subject_to(WORLD.problem, fedmin.NormAtMost(9.0))
THIS = __name__
SHORT = {"method": fedmin.FedAvg(0.3), "channel": fedmin.chain(fedmin.Clip(1.0), fedmin.TopK(2))}
UNDER = {"method": fedmin.SSCA(), "problem": LIMITED}
CERTIFIED = {**UNDER, "certificate": True}
OF_SITES = fedmin.BySite(fedmin.Scores(on="train"))
OWN = {"problem": fedmin.from_loss(own_loss, jnp.zeros(4))}
CASES = [  # the policy, what is run, how the refusal begins
    ({"methods": ["fedavg"]}, {}, "the run has the method 'scaffold'; the policy's methods are 'f"),
    ({"problems": ["softmax"]}, {}, "the run has the problem 'leastsquares'; the policy's prob"),
    ({"constraints": []}, UNDER, "the run has the constraint 'normatmost'; the policy's"),
    ({"channels": ["clip"]}, {}, "the run has the channel 'plain'; the policy's channels are 'c"),
    ({"channels": ["clip"]}, SHORT, "the run has the channel 'topk'"),
    ({"metrics": []}, {}, "the run has the metric 'objective'; the policy's metrics are none"),
    (
        {"metrics": ["bysite"]},
        {"record": [OF_SITES]},
        "the run has the metric 'scores'; the",
    ),
    ({"metrics": ["objective"]}, CERTIFIED, "the run has the metric 'certificate'; the policy's m"),
    ({"smallest_roster": 4}, {}, "the run has 3 clients; the policy's smallest_roster is 4"),
    ({"smallest_cohort": 3}, {"part": fedmin.Uniform(2)}, "a round of the run may have only 2 c"),
    ({"smallest_cohort": 2}, {"part": fedmin.Bernoulli(0.9)}, "a round of the run may have only 1"),
    ({"smallest_cohort": 3}, {"quorum": 0.5}, "a round of the run may have only 2 clients (every"),
    ({"smallest_sum": 2}, {}, "replies of scaffold through plain are seen one by one"),
    ({"smallest_sum": 4}, {"channel": Hidden()}, "replies of scaffold through hidden are seen in "),
    ({"smallest_sum": 2}, {"channel": Hidden()}, "what is measured on the site's rows is seen one"),
    ({"most_rounds": 5}, {}, "the run has 6 rounds; the policy's most_rounds is 5"),
    ({"largest_epsilon": 1.0}, {}, "the run has no differential privacy; the policy's largest_ep"),
    ({"largest_epsilon": 1.0}, {"epsilon": 1.5}, "the run has an epsilon of 1.5"),
    ({"columns": ["age"]}, {"columns": ["age", "name"]}, "the run has the column 'name'; the pol"),
    ({"runs": ["00ff"]}, {"name": "beef"}, "the run has the name 'beef'; the policy's runs are '"),
    ({"runs": ["00ff"]}, {}, "the run has the name ''"),
    (
        {"seeded": False},
        {"seeded": True},
        "the run draws this site's batches and noise from its se",
    ),
    ({}, {"channel": Hidden()}, f"the run needs the module '{THIS}'; the policy's modules are no"),
    ({}, OWN, f"the run needs the module '{THIS}'"),
]
ALLOWED = [
    ({"methods": ["scaffold"], "problems": ["leastsquares"], "channels": ["plain"]}, {}),
    ({"constraints": ["normatmost"]}, UNDER),
    ({"channels": ["clip", "topk"]}, SHORT),
    ({"metrics": ["objective"]}, {}),
    ({"metrics": ["bysite", "scores"]}, {"record": [OF_SITES]}),
    ({"own_line": False}, {"record": [OF_SITES]}),  # the run goes on without its line
    ({"metrics": ["objective", "certificate"]}, CERTIFIED),
    ({"metrics": []}, {"record": [fedmin.Support()]}),  # of the model alone
    ({"smallest_roster": 3, "smallest_cohort": 3}, {}),
    ({"smallest_cohort": 2}, {"quorum": 0.6}),
    ({"most_rounds": 6}, {}),
    ({"largest_epsilon": 1.0}, {"epsilon": 1.0}),
    ({"columns": ["age", "weight"]}, {"columns": ["age"]}),
    ({"runs": ["00ff"]}, {"name": "00ff"}),
    ({"seeded": True}, {"seeded": True}),
    ({"modules": [THIS]}, {"channel": Hidden()}),
    ({"modules": [THIS], "smallest_sum": 3}, {"channel": Hidden(), "record": [fedmin.Support()]}),
]


def said(policy, wanted) -> str:
    made = dict(wanted)
    more = {k: made.pop(k) for k in ("quorum", "epsilon", "columns", "name", "seeded") if k in made}
    if "smallest_sum" in policy:
        policy = {"modules": [THIS], **policy}
    return Policy(**policy).refuses(built(**made), ROSTER, 6, **more)


@pytest.mark.parametrize(("policy", "wanted", "words"), CASES, ids=range(len(CASES)))
def test_a_policy_refuses_in_one_sentence(policy, wanted, words):
    found = said(policy, wanted)
    assert found.startswith(words)
    assert "\n" not in found


@pytest.mark.parametrize(("policy", "wanted"), ALLOWED, ids=range(len(ALLOWED)))
def test_a_policy_allows_what_it_says(policy, wanted):
    assert said(policy, wanted) == ""


def test_every_field_of_a_policy_is_tried():
    tried = {key for policy, *_ in CASES for key in policy}
    assert tried | {"modules", "own_line"} == {each.name for each in fields(Policy)}


def test_a_relay_shows_single_replies_to_other_clients():
    policy = Policy(smallest_sum=3, modules=(THIS,))
    columns = split((3, 1, 3))
    made = assemble(
        fedmin.Softmax(7, 3), columns, fedmin.SplitSGD(0.1), fedmin.Everyone(), Hidden(),
        [fedmin.Support()], None,
    )  # fmt: skip
    assert "are seen one by one" in policy.refuses(made, columns.roster(), 1)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"most_rounds": 0}, "most_rounds must be at least 1"),
        ({"smallest_cohort": 1.5}, "smallest_cohort must be a whole number"),
        ({"largest_epsilon": -1.0}, "largest_epsilon must be more than 0"),
        ({"methods": "fedavg"}, "methods must be a list of words"),
        ({"columns": [1]}, "columns must be a list of words"),
    ],
)
def test_a_policy_is_checked_itself(words, match):
    with pytest.raises((ValueError, TypeError), match=match):
        Policy(**words)


def test_own_code_is_found_wherever_it_is():
    made = fedmin.FedAvg(batches=fedmin.Full())
    assert {m.partition(".")[0] for m in modules_in(made)} == {"fedmin"}
    inside = ({"a": [functools.partial(own_loss, 1)]}, fedmin.MLP(3, 2, hidden=(4,)))
    assert {m.partition(".")[0] for m in modules_in(inside)} == {
        THIS.partition(".")[0],
        "fedmin",
        "jax",
    }


# ---------------------------------------------------------------- the guard of a site


def guarded(
    monkeypatch, folder: Path, policy=Policy(modules=("masks",)), rounds=3
) -> list[GuardedSite]:
    """Loopback runs from here on have guarded sites; those of the last run."""
    made: list[GuardedSite] = []

    class Guarded(memory.Memory):
        def __init__(self, sites, absent=()):
            super().__init__(sites)
            for site in sites:
                log = Departures(folder / f"{site.name}.log", site.name)
                made.append(GuardedSite(site, policy, log, rounds=rounds))

        def deliver(self, messages, deadline=None, enough=None, before=None):
            for i, data in (before or {}).items():
                made[i].answer(data)
            return {i: made[i].answer(data) for i, data in messages.items()}

    monkeypatch.setattr(memory, "Memory", Guarded)
    return made


WAYS = {
    "rows": (WORLD, METHOD, {}),
    "some clients": (WORLD, METHOD, {"participation": fedmin.Bernoulli(0.6)}),
    "compact": (WORLD, METHOD, {"channel": fedmin.TopK(2)}),
    "a certificate": (
        SimpleNamespace(problem=LIMITED, federation=WORLD.federation),
        fedmin.SSCA(),
        {},
    ),
    "the channel's own trips": (WORLD, METHOD, {"channel": masks.PairwiseMasks()}),
    "columns": (PARTED, fedmin.SplitSGD(0.1), {}),
    "labels at one": (WITH_ONE, fedmin.SplitSGD(0.1), {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_sums_of_the_logs_are_the_servers_ledger(monkeypatch, tmp_path, way):
    world, method, options = WAYS[way]
    sites = guarded(monkeypatch, tmp_path)
    result = run(world, method, rounds=3, every=2, engine=fedmin.Loopback(), **options)
    total: dict[str, int] = {}
    for site in sites:
        for kind, size in sums(read(site.log.path)).items():
            total[kind] = total.get(kind, 0) + size
    ledger = {k: v for k, v in result.ledger.by_kind().items() if "up " in k and v}
    assert {k: v for k, v in total.items() if v} == ledger
    if way == "rows":  # all sites send alike there
        one = sums(read(sites[0].log.path))
        assert one == {kind: size // len(sites) for kind, size in ledger.items()}
    entries = read(sites[0].log.path)
    assert {e.when for e in entries} >= {"training", "evaluation"}
    assert all(sum(e.parts.values()) == e.bytes for e in entries)
    sealed = [e for e in entries if e.to != "server"]
    assert bool(sealed) == (world in (PARTED, WITH_ONE))
    assert all(e.shapes for e in entries if e.parts.keys() != {"header"})


def test_a_reply_that_is_asked_twice_is_written_down_twice(tmp_path):
    site, log = one_site(tmp_path)
    question = ask(site, 0)
    assert site.answer(question) == site.answer(question)
    first, second = read(log.path)
    assert (first.again, second.again) == (False, True)
    assert first.sha256 == second.sha256
    assert sums([first, second]) == sums([first])  # the ledger counts it once
    assert log.rounds(site.name) == 1


def one_site(folder, policy=Policy(), rounds=3, seed=0) -> tuple[GuardedSite, Departures]:
    made = built(fedmin.FedSGD(0.1), channel=fedmin.Plain())
    session = SiteSession(made, ROSTER, 0, WORLD.federation.client(0), seed=seed)
    log = Departures(folder / "a.log", session.name)
    return GuardedSite(session, policy, log, rounds=rounds), log


def ask(site: GuardedSite, t: int, fill: float = 0.5) -> bytes:
    session = site.site
    like = session.messages.training.ask_like(0, 0, ROSTER.clients)
    body = {name: jnp.full(a.shape, fill, a.dtype) for name, a in like.items()}
    return wire.encode(wire.Envelope("ask", t, 0, SERVER, 0, session.run_name), body)


def test_a_site_refuses_a_run_that_its_policy_forbids(tmp_path):
    with pytest.raises(PolicyError, match="the run has 3 rounds; the policy's most_rounds is 2"):
        one_site(tmp_path, Policy(most_rounds=2), rounds=3)


def test_a_server_that_says_less_than_it_asks_is_refused_at_the_limit(tmp_path):
    """It announced two rounds, as the policy allows, and goes on."""
    site, log = one_site(tmp_path, Policy(most_rounds=2), rounds=2)
    site.answer(ask(site, 0))
    last = site.answer(ask(site, 1))
    state = site.site.state
    with pytest.raises(PolicyError, match="2 rounds of this run were answered"):
        site.answer(ask(site, 2))
    assert site.site.state is state
    assert len(read(log.path)) == 2
    assert site.answer(ask(site, 1)) == last  # asked again in the same words: no further round


def look(site: GuardedSite, t: int) -> bytes:
    session = site.site
    like = session.messages.evaluation.ask_like(0, 0, ROSTER.clients)
    body = {name: jnp.full(a.shape, 1.0 + t, a.dtype) for name, a in like.items()}
    where = wire.Envelope("ask", t, wire.EVALUATION, SERVER, 0, session.run_name)
    return wire.encode(where, body)


def test_looks_at_the_model_are_counted_too(tmp_path):
    """With gaps a server may ask for looks at any model, round after round."""
    made = built(fedmin.FedSGD(0.1))
    session = SiteSession(made, ROSTER, 0, WORLD.federation.client(0), seed=0, gaps=True)
    log = Departures(tmp_path / "a.log", session.name)
    site = GuardedSite(session, Policy(most_rounds=2), log, rounds=2)
    for t in range(3):  # before the first round, and after each
        site.answer(look(site, t))
    with pytest.raises(PolicyError, match="3 looks at the model were answered"):
        site.answer(look(site, 3))


def test_asking_anew_after_a_restart_gives_no_further_rounds(tmp_path):
    """A server that lets a site begin anew, and asks the same rounds in other words."""
    for fill in (0.5, 0.6):
        site, log = one_site(tmp_path, Policy(most_rounds=2), rounds=2)
        site.answer(ask(site, 0, fill))
        log.close()
    site, log = one_site(tmp_path, Policy(most_rounds=2), rounds=2)
    assert log.rounds(site.name) == 2
    site.answer(ask(site, 0, 0.6))  # known
    with pytest.raises(PolicyError, match="most_rounds is 2"):
        site.answer(ask(site, 1))
    log.close()
    other, log = one_site(tmp_path, Policy(most_rounds=2), rounds=2, seed=1)  # another run
    other.answer(ask(other, 0))


def test_what_cannot_be_written_down_does_not_leave(tmp_path, monkeypatch):
    site, log = one_site(tmp_path)
    site.answer(ask(site, 0))

    def full(number, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            site.answer(ask(site, 1))
    site.answer(ask(site, 1))  # there is space again: the same reply leaves now
    assert [e.round for e in read(log.path)] == [0, 1]
