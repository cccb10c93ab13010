"""A wire tap finds what is on the wire as it is, and nothing where it is hidden."""

import numpy as np
import pytest
from typer.testing import CliRunner

import fedmin
from fedmin.assembling import assemble
from fedmin.cli import app as cli
from fedmin.core.kept import DamagedError
from fedmin.engines.messages import messages_of
from fedmin.engines.round import SERVER
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.tap import heard
from fedmin.privacy.search import search
from masks import OneOpens, PairwiseMasks
from parted import split

RNG = np.random.default_rng(5)
CLIENTS = [(RNG.standard_normal((n, 12)), RNG.integers(0, 2, n)) for n in (4, 5, 3)]
ROWS = fedmin.Federation.from_clients(CLIENTS, names=list("abc"))
LOGISTIC = fedmin.Logistic(12)
HIDDEN = {"pairwise": PairwiseMasks(looks=True), "one opens": OneOpens(looks=True)}


def tapped(tmp_path, federation=ROWS, problem=LOGISTIC, method=None, **options):
    path, method = tmp_path / "tap", method or fedmin.FedSGD(0.1)
    settings = {"rounds": 2, "engine": fedmin.Loopback(), "tap": path} | options
    result = fedmin.minimize(problem, federation, method, **settings)
    return list(heard(path)), result


def sent_by(kept, client, trips=range(0x4000)):
    return [h.data for h in kept if h.envelope.sender == client and h.envelope.trip in trips]


def replies(kept, method=None) -> np.ndarray:
    """p_i times the gradients, read from a tap of a run that hides nothing."""
    method = method or fedmin.FedSGD(0.1)
    run = assemble(LOGISTIC, ROWS, method, fedmin.Everyone(), fedmin.Plain(), None, None)
    like = messages_of(run, ROWS.roster()).training.forms[0].sent
    mine = [data for i in range(3) for data in sent_by(kept, i)]
    return np.stack([np.asarray(wire.decode(data, like)[1]["gradient"]) for data in mine])


def test_every_byte_is_kept_with_who_and_when(tmp_path):
    kept, result = tapped(tmp_path)
    ledger = result.ledger
    up = sum(len(data) for i in range(3) for data in sent_by(kept, i))
    down = sum(len(data) for data in sent_by(kept, SERVER))
    assert (down, up) == (ledger.bytes("down"), ledger.bytes("up"))
    said = {(h.envelope.round, h.envelope.sender, h.envelope.receiver) for h in kept}
    assert {(t, i, SERVER) for t in (0, 1) for i in range(3)} <= said
    assert (tmp_path / "tap").stat().st_mode & 0o077 == 0


def test_replies_and_models_are_found_when_nothing_hides_them(tmp_path):
    kept, result = tapped(tmp_path)
    wanted = {"reply": replies(kept), "model": result.solution}
    up = [data for i in range(3) for data in sent_by(kept, i)]
    found = search(up, wanted)
    assert {(f.what, f.number) for f in found} >= {("reply", k) for k in range(6)}
    assert all(f.correlation == 1 for f in found if f.what == "reply" and f.number == f.message)
    # unscaled too: the server knows p_i, and a correlation does not ask for it
    scaled = search(up, {"reply": replies(kept) * -7.5})
    assert {f.number for f in scaled} == set(range(6))
    looks = [h.data for h in kept if h.envelope.sender == SERVER]  # the last look is at the model
    assert any(f.what == "model" for f in search(looks, {"model": result.solution}))


@pytest.mark.parametrize("name", HIDDEN)
def test_nothing_is_found_when_replies_are_hidden(tmp_path, name):
    plain, _ = tapped(tmp_path)
    wanted = replies(plain)
    (tmp_path / "tap").unlink()
    kept, _ = tapped(tmp_path, channel=HIDDEN[name])
    assert len(kept) > 12
    rows = np.concatenate([x for x, _ in CLIENTS])
    hidden = [h.data for h in kept if h.envelope.sender != SERVER]
    if name == "one opens":  # the client that opens the sum sends the sum, which is to be learnt
        hidden = [h.data for h in kept if h.envelope.sender not in (SERVER, 0)]
    assert search(hidden, {"reply": wanted, "row": rows}) == []


@pytest.mark.filterwarnings("ignore:privacy:UserWarning")
def test_a_row_is_found_in_the_gradient_of_one_row(tmp_path):
    """A scaled copy: slope times the row."""
    method = fedmin.FedSGD(0.1, batches=fedmin.WithoutReplacement(1))
    kept, _ = tapped(tmp_path, method=method)
    rows = np.concatenate([x for x, _ in CLIENTS])
    found = search([d for i in range(3) for d in sent_by(kept, i)], {"row": rows})
    assert len({f.message for f in found}) == 6
    assert all(abs(f.correlation) > 0.999 and f.form == "<f8" for f in found)


@pytest.mark.filterwarnings("ignore:privacy:UserWarning")
@pytest.mark.parametrize(("labels", "there"), [("server", True), ("everyone", False)])
def test_embeddings_are_found_unless_they_are_sealed(tmp_path, labels, there):
    federation = split((2, 5), labels=labels)
    kept, _ = tapped(
        tmp_path, federation, fedmin.Softmax(7, 3), fedmin.SplitSGD(0.5), start=np.ones(21) * 0.1
    )
    x = np.asarray(federation.client(1).x.values)
    embeddings = x @ np.full((5, 3), 0.1)
    own = [h.data for h in kept if h.envelope.sender == 1]
    found = search(own, {"embedding": embeddings.reshape(1, -1)})
    assert bool(found) == there, found


FORMS = {
    "float32": lambda v: v.astype("<f4").tobytes(),
    "float64, from an odd byte": lambda v: b"x" + v.tobytes(),
    "big-endian": lambda v: v.astype(">f8").tobytes(),
    "a part of it": lambda v: v[:5].astype("<f4").tobytes(),
    "integers of 32 bits": lambda v: np.round(v * 2**20).astype("<i4").tobytes(),
    "integers of 64 bits, odd": lambda v: b"abc" + np.round(v * 2**40).astype("<i8").tobytes(),
    "bytes": lambda v: np.round(v * 30).astype("<i1").tobytes(),
    "scaled and shifted": lambda v: (3.0 - 0.01 * v).astype("<f4").tobytes(),
    "with a little noise": lambda v: (v + 0.001 * np.cos(np.arange(40.0))).tobytes(),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_found(form):
    rng = np.random.default_rng(1)
    vector = rng.standard_normal(40)
    noise = rng.bytes(100)
    message = noise + FORMS[form](vector) + noise
    assert search([message], {"row": vector}), form
    assert search([message], {"row": rng.standard_normal(40)}) == []


def test_a_mask_leaves_nothing_to_find():
    """Of 200 masked copies none is found, as floats, as integers, or by correlation."""
    rng = np.random.default_rng(2)
    vector = rng.standard_normal(40)
    whole = np.round(vector * 2**20).astype(np.int64).astype(np.uint32)
    masked = [
        (whole + rng.integers(0, 2**32, 40, np.uint32)).astype("<u4").tobytes() for _ in range(200)
    ]
    assert search(masked, {"row": vector}) == []


def test_sparse_rows_are_not_found_in_garbage():
    """One huge number among garbage goes with a vector that has one entry."""
    rng = np.random.default_rng(3)
    assert search([rng.bytes(20_000)], {"row": np.eye(30)[3]}) == []


def test_a_sum_of_rows_that_are_alike_is_none_of_them():
    """Rows in raw units go with their mean; a copy of one is still found among them."""
    rng = np.random.default_rng(3)
    rows = 100 * np.arange(1.0, 14.0) + rng.standard_normal((8, 13))
    mean = (-0.7 * rows.mean(axis=0)).astype("<f4").tobytes()
    assert search([mean], {"row": rows}) == []
    copy = (-0.7 * rows[5]).astype("<f4").tobytes()
    assert [f.number for f in search([copy], {"row": rows})] == [5]


def test_what_is_no_tap_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"something else")
    with pytest.raises(DamagedError, match="no tap"):
        list(heard(path))
    with pytest.raises(ValueError, match="is no tap; give another name"):
        tapped(tmp_path, tap=path)
    with pytest.raises(ValueError, match="the simulator sends nothing"):
        tapped(tmp_path, engine=fedmin.Simulator())
    kept, _ = tapped(tmp_path)
    whole = (tmp_path / "tap").read_bytes()
    (tmp_path / "tap").write_bytes(whole[:-3])  # killed while it wrote
    assert list(heard(tmp_path / "tap")) == kept[:-1]
    (tmp_path / "tap").write_bytes(whole[:60] + b"?" + whole[61:])
    with pytest.raises(DamagedError, match="checksum"):
        list(heard(tmp_path / "tap"))


def test_the_command_line(tmp_path):
    file, tap = tmp_path / "run.toml", tmp_path / "tap"
    text = (
        '[data]\nname = "wine"\nstandardize = true\n[partition]\nname = "iid"\nclients = 2\n'
        '[problem]\nname = "softmax"\n[method]\nname = "fedsgd"\nstep = 1e-6\n'
        '[run]\nrounds = 1\nengine = "loopback"\n'
    )
    file.write_text(text)
    say = CliRunner().invoke
    options = ["run", str(file), "--out", str(tmp_path / "runs"), "--quiet", "--tap", str(tap)]
    outcome = say(cli.app, options)
    assert outcome.exit_code == 0, outcome.output
    outcome = say(cli.app, ["tap", str(tap), "--of", str(file), "--most", "4"])
    assert outcome.exit_code == 0, outcome.output
    assert "0 of 8 rows" in outcome.output
    assert "client 1" in outcome.output
    file.write_text(text.replace('engine = "loopback"\n', "seeds = [4]\n"))
    outcome = say(cli.app, options)
    assert outcome.exit_code == 2
    assert "the simulator sends nothing" in outcome.output
