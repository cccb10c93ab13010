"""Private set intersection: the rows that all parties have, in one order, and what each one learns.

Intersections are compared with Python's own sets, joins with the ids of the files.
"""

import hashlib
import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import conftest
import fedmin
from fedmin.cli.app import app
from fedmin.data import join_parties, read_party
from fedmin.engines.sessions.seal import Sealer
from fedmin.engines.sessions.wire import MessageError
from fedmin.engines.transports.grpc.streams import SiteStreams
from fedmin.privacy import intersection
from fedmin.privacy.alignment import AlignmentError, Ids, Leader, Member, align
from fedmin.privacy.authority import make_authority, sign
from fedmin.privacy.departures import Departures, read
from fedmin.privacy.identity import Identity, make_request
from fedmin.privacy.intersection import Answerer, Asker, IntersectionError
from fedmin.runs.config import Config
from fedmin.runs.meeting import AligningSite, packed, serve_alignment, unpacked
from fedmin.runs.site_file import SiteFile

SITE = 'name = "{0}"\nserver = "localhost:{1}"\nkeys = "../keys/{0}"\n[data]\nfile = "{0}.csv"\n'
RUN = """\
data = {name = "breast_cancer"}
problem = {name = "logistic"}
method = {name = "splitsgd"}
partition = {name = "evencolumns", clients = 2, labels = "guest"}
run = {rounds = 2}
federation = {sites = ["host", "guest"]}
"""


def common(ids, rows):
    """The ids at a party's aligned rows."""
    return [ids[row] for row in rows]


# ---------------------------------------------------------------- the intersection


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_the_rows_that_all_have_in_one_order(parties, rng):
    ids = {f"p{i}": rng.choice(60, 40, replace=False).tolist() for i in range(parties)}
    rows = align(ids, leader="p1")
    named = [common(ids[name], rows[name]) for name in ids]
    assert all(names == named[0] for names in named)
    assert set(named[0]) == set.intersection(*map(set, ids.values()))
    assert len(named[0]) == len(set(named[0]))


def test_parts_in_threads_are_one_intersection(monkeypatch):
    """A million ids are blinded in parts, one a core: parts change nothing."""
    monkeypatch.setattr(intersection, "FEW", 7)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    ours, theirs = [f"id {k}" for k in range(40)], [f"id {k}" for k in range(25, 60)]
    asker = Asker(ours)
    assert sorted(asker.common(Answerer(theirs).answer(asker.question()))) == list(range(25, 40))


def test_the_order_is_by_chance_and_another_one_every_time():
    """No order of the files, of the ids or of an earlier meeting shows through."""
    ids = {"a": list(range(40)), "b": list(range(39, -1, -1))}
    orders = [tuple(align(ids)["a"].tolist()) for _ in range(3)]
    assert len(set(orders)) == 3
    for order in orders:
        assert sorted(order) == list(range(40))
        ranks = np.corrcoef(np.arange(40), order)[0, 1]
        assert abs(ranks) < 0.75  # 5 standard deviations of a permutation by chance are 0.8


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ({"a": [1, 2], "b": [3]}, "no id is common to all of a, b"),
        ({"a": [1, 2, 1], "b": [3]}, "a, row 2 has the id '1', which row 0 has too"),
        ({"a": [1, 2], "b": ["1", "x7"]}, "those of b text .b, row 1 has 'x7'.: all parties need"),
        ({"a": ["01", "2"], "b": ["1"]}, "the ids of a are text .a, row 0 has '01'., those of b"),
        ({"a": [1], "b": [1.0]}, "b, row 0 has 1.0 of type float"),
        ({"a": [1], "b": [""]}, "b, row 0 has nothing: an id is a whole number or text"),
        ({"a": ["x"], "b": [" x"]}, "b, row 0 has ' x', with blanks around it"),
        ({"a": [1], "b": []}, "b has no rows"),
        ({"a": [1]}, "1 parties: an alignment needs two or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_aligned_is_refused_in_words(ids, words):
    with pytest.raises(AlignmentError, match=words):
        align(ids)


def test_a_leader_must_be_a_party():
    with pytest.raises(AlignmentError, match="the leader 'z' is none of a, b"):
        align({"a": [1], "b": [1]}, leader="z")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "private_set_intersection.python", None)
    with pytest.raises(IntersectionError, match=r"pip install 'fedmin\[privacy\]'"):
        align({"a": [1], "b": [1]})


# ---------------------------------------------------------------- what each one learns


def meeting(ours, theirs):
    """The three messages between a leader and one other, and both."""
    leader = Leader(Ids.of("a", ours), ["b"])
    member = Member(Ids.of("b", theirs), "a")
    question = leader.question()
    answer = member.answer(question)
    leader.took("b", answer)
    order = leader.order()
    member.took(order)
    return (question, answer, order), leader, member


def forms(value):
    """An id as anything that could stand in a message: text, number, digests of the text."""
    yield str(value).encode()
    if isinstance(value, int):
        for kind in ("<I", ">I", "<Q", ">Q", "<d", ">d", "<f", ">f"):
            yield struct.pack(kind, value)
    for name in ("sha256", "sha1", "md5", "blake2b"):
        yield hashlib.new(name, str(value).encode()).digest()[:16]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([f"patient-{k:04}" for k in range(12)], [f"patient-{k:04}" for k in range(6, 20)]),
        ([70_000_001 + 977 * k for k in range(12)], [70_000_001 + 977 * k for k in range(6, 20)]),
    ],
    ids=["text", "numbers"],
)
def test_no_id_is_in_any_message(ours, theirs):
    messages, *_ = meeting(ours, theirs)
    for value in {*ours, *theirs}:
        assert not any(form in message for form in forms(value) for message in messages)


def test_lengths_say_the_sizes_and_nothing_else():
    """Other ids, of other lengths, with the same sizes: messages of the same lengths."""
    worlds = [
        ([str(k) for k in range(9)], [str(k) for k in range(4, 11)]),
        ([f"{'long' * 9} {k}" for k in range(9)], [f"{'long' * 9} {k}" for k in range(8, 1, -1)]),
    ]
    lengths = [[len(message) for message in meeting(*world)[0]] for world in worlds]
    assert lengths[0][:2] == lengths[1][:2]
    assert [length[2] for length in lengths] == [32 + 16 * 5, 32 + 16 * 7]  # how many all have


def test_a_member_is_told_of_common_ids_only():
    """What it can open of the order are its own ids that the leader has too: the intersection."""
    (*_, order), leader, member = meeting(list(range(20)), list(range(15, 40)))
    assert sorted(member.ids.values[row] for row in member.rows) == [str(k) for k in range(15, 20)]
    # the leader's other ids are not in the order: who knows them cannot find them
    all_of_them = Member(Ids.of("b", list(range(100))), "a")
    all_of_them.took(order)
    assert sorted(all_of_them.rows.tolist()) == list(range(15, 20))
    # nor in the question: the points are not those of the same ids under any other secret
    points = lambda asker: set(asker._library.Request.FromString(asker.question())
                               .encrypted_elements)  # fmt: skip
    ours = points(leader._asker)
    assert not ours & points(Asker([str(k) for k in range(100)]))


def test_the_leader_learns_which_of_its_own_ids_the_other_has():
    (_, answer, _), leader, _ = meeting(list(range(20)), list(range(15, 40)))
    assert sorted(leader.rows.tolist()) == [15, 16, 17, 18, 19]
    # with another secret the same answer shows nothing: ids that were not asked stay hidden
    assert Asker([str(k) for k in range(20)]).common(answer) == []


def test_what_is_no_step_is_refused():
    (question, answer, order), leader, member = meeting([1, 2, 3], [2, 3, 4])
    asker = leader._asker
    for broken in (b"", answer[:20], answer[:-3]):
        with pytest.raises(IntersectionError):
            asker.common(broken)
    for broken in (b"", b"\x07" + question[1:], question[:-3], question[:3] + b"x" * 35):
        with pytest.raises(IntersectionError):
            member.answer(broken)
    for broken in (b"", order[:-1], order + order[-16:], order[:-16] + bytes(16)):
        with pytest.raises(IntersectionError):
            member.took(broken)


# ---------------------------------------------------------------- files


def sites(folder, text, port=1, **more):
    """Files of two parties with ids, each in its own folder."""
    for name, rows in text.items():
        (folder / name).mkdir()
        (folder / name / f"{name}.csv").write_text(rows)
        words = SITE.format(name, port) + more.get(name, 'id = "id"\n')
        (folder / name / "site.toml").write_text(words)
    return [str(folder / name / "site.toml") for name in text]


def parted(rng, count=60):
    """Breast cancer's columns at two parties, who have some rows in common, and their ids."""
    table = fedmin.data.load("breast_cancer").standardized()
    x, y = table.x[:count], table.y[:count]
    ids = rng.permutation(1000)[:count]
    text = {}
    for name, columns, have in (("host", range(3, 7), 15), ("guest", range(3), 0)):
        labels = name == "guest"
        lines = ["id," + ("y," if labels else "") + ",".join(f"x{j}" for j in columns)]
        for row in rng.permutation(np.arange(have, have + count - 15)):
            numbers = [str(y[row])] * labels + [repr(float(x[row, j])) for j in columns]
            lines.append(",".join([str(ids[row]), *numbers]))
        text[name] = "\n".join(lines) + "\n"
    return text


def test_a_run_on_columns_starts_from_the_aligned_files(tmp_path, rng):
    text = parted(rng)
    files = sites(tmp_path, text, guest='id = "id"\noutcome = "y"\n')
    done = CliRunner().invoke(app, ["align", *files])
    assert done.exit_code == 0, done.output
    assert "host: 30 of 45 rows are common to all" in done.output
    parties = {name: read_party(tmp_path / name / f"{name}.aligned.csv") for name in text}
    assert parties["host"].ids.tolist() == parties["guest"].ids.tolist()  # row k is row k
    before = {name: read_party(tmp_path / name / f"{name}.csv") for name in text}
    joined, plain = join_parties(parties), join_parties(before, common=True)
    assert set(joined.ids) == set(plain.ids)
    order = [plain.ids.tolist().index(name) for name in joined.ids]
    np.testing.assert_array_equal(joined.x, plain.x[order])
    np.testing.assert_array_equal(joined.y, plain.y[order])
    # what each site reads of its own aligned file is its block, without the ids
    words = (tmp_path / "host/site.toml").read_text().replace("host.csv", "host.aligned.csv")
    own = SiteFile.of(words, tmp_path / "host").table()
    np.testing.assert_allclose(own.x, parties["host"].x)
    assert own.feature_names == ("x3", "x4", "x5", "x6")
    table = fedmin.data.Table("aligned", joined.x, joined.y.astype(int), 2)
    columns = fedmin.data.ColumnSizes([4, 3])
    federation = fedmin.data.partition(table, columns)
    result = fedmin.minimize(fedmin.Logistic(7), federation, fedmin.SplitSGD(0.5), rounds=20)
    assert result.final("objective") < 0.6 * np.log(2)


@pytest.mark.parametrize(
    ("host", "more", "words"),
    [
        ("id,x\n1,0\n2,0\n1,0\n", 'id = "id"\n', "host.csv, line 4, column 'id' has the id '1', "
         "which line 2, column 'id' has too"),
        ("id,x\n1,0\n", 'id = "ids"\n', "host.csv: expected a column 'ids'"),
        ("id,x\n1,0\n", "", "site host: [data] names no column of ids"),
        ("id,x\n7,0\n", 'id = "id"\n', "no id is common to all of host, guest"),
        ("id,x\n7,0\nb,0\n", 'id = "id"\n', "text (host.csv, line 3, column 'id' has 'b')"),
        ("id,x\n7,0\n,0\n", 'id = "id"\n', "host.csv, line 3, column 'id' has nothing"),
        ("id,x\n7,0\n", 'id = "id"\nfeatures = ["id"]\n', "line 6: the column 'id' says whose row"),
        ("id,x\n7,0\n", 'id = "id"\n[policy]\ncolumns = ["x"]\n', "the policy's columns are 'x'"),
    ],
)  # fmt: skip
def test_a_users_mistake_is_one_line_and_nothing_is_written(tmp_path, host, more, words):
    files = sites(tmp_path, {"host": host, "guest": "id,x\n1,0\n2,1\n"}, host=more)
    done = CliRunner().invoke(app, ["align", *files], env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert words in done.output.replace("\n", " ")
    assert not list(tmp_path.rglob("*.aligned.csv"))


# ---------------------------------------------------------------- machines


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    home = tmp_path_factory.mktemp("meeting") / "keys"
    make_authority(home / "authority")
    for name, role, hosts in (("host", "site", []), ("guest", "site", []),
                              ("hub", "server", ["localhost", "127.0.0.1"])):  # fmt: skip
        sign(home / "authority", make_request(home / name, name, role, hosts), out=home / name)
    return home


def over_machines(keys, folder, text, monkeypatch, **more):
    """A server here, a process a site; what the processes said, and all that was carried."""
    (folder / "keys").symlink_to(keys)
    (folder / "run.toml").write_text(RUN)
    carried, processes = [], {}
    deliver = SiteStreams.deliver

    def watch(self, messages, *rest):
        replies = deliver(self, messages, *rest)
        carried.append((messages, replies))
        return replies

    monkeypatch.setattr(SiteStreams, "deliver", watch)

    def start(port):
        for file in sites(folder, text, port, **more):
            command = [sys.executable, "-m", "fedmin.cli", "align", file, "--patience", "60"]
            env = os.environ | conftest.QUICKLY
            processes[file] = subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )

    error = ""
    try:
        config, hub = Config.read(folder / "run.toml"), Identity.load(keys / "hub")
        serve_alignment(config, hub, "127.0.0.1:0", told=start)
    except ValueError as found:
        error = str(found)
    said = [process.communicate(timeout=120)[0] for process in processes.values()]
    return said, [process.returncode for process in processes.values()], carried, error


def test_a_server_that_swaps_keys_or_parties_is_refused(keys, tmp_path):
    """Each site signs its key, the meeting, the parties and the leader; all check it."""
    words = {"meeting": "00", "parties": ["host", "guest"], "leader": "guest", "largest": 1}

    def site(name, log, **other):
        identity, ids = Identity.load(keys / name), Ids.of(name, [1, 2])
        return AligningSite(identity, ids, log, {"align": words | other})

    def keys_of(*sites):
        return packed(0, {i: json.dumps(s).encode() for i, s in enumerate(sites)})

    with Departures(tmp_path / "log", "host") as log:
        host, guest = site("host", log), site("guest", log)
        mine, theirs = host.ready(), guest.ready()
        forged = theirs | {"key": Sealer(1).public.tobytes().hex()}  # of the server's own
        with pytest.raises(ValueError, match="key of guest is not believed: its signature does"):
            host.answer(keys_of(mine, forged))
        with pytest.raises(ValueError, match="key of guest is not believed: its certificate is"):
            host.answer(keys_of(mine, mine))
        for other in ({"meeting": "01"}, {"leader": "host"}, {"parties": ["guest", "host"]}):
            with pytest.raises(ValueError, match="key of guest is not believed"):
                host.answer(keys_of(mine, site("guest", log, **other).ready()))
        assert unpacked(host.answer(keys_of(mine, theirs))) == (0, {})  # and the right one is
        with pytest.raises(MessageError, match="step 3 of an alignment, where 1 comes next"):
            host.answer(packed(3, {}))
        question = unpacked(guest.answer(keys_of(mine, theirs)))[1][0]
        changed = bytes([question[0] ^ 1]) + question[1:]
        with pytest.raises(MessageError, match="seal is broken"):
            host.answer(packed(1, {1: changed}))
        reply = host.answer(packed(1, {1: question}))
        assert host.answer(packed(1, {1: question})) == reply  # asked twice, the same


def test_processes_align_through_a_server_that_cannot_read_it(keys, tmp_path, rng, monkeypatch):
    text = parted(rng)
    said, codes, carried, error = over_machines(keys, tmp_path, text, monkeypatch)
    assert (codes, error) == ([0, 0], ""), said
    assert "host: 30 of 45 rows are common to all" in said[0]
    parties = {name: read_party(tmp_path / name / f"{name}.aligned.csv") for name in text}
    assert parties["host"].ids.tolist() == parties["guest"].ids.tolist()
    assert join_parties(parties).x.shape == (30, 7)
    # what the server carried: points of the curve would begin with 2 or 3 every 35 bytes, and none
    # of the sealed packets is what it is without its seal
    packets = [packet for _, replies in carried for reply in replies.values()
               for packet in unpacked(reply)[1].values()]  # fmt: skip
    assert [len(packet) - 16 for packet in packets] == [
        1 + 2 + 35 * 45,
        8 + 3 + 35 * 45 + 35 * 45,
        32 + 16 * 30,
    ]
    for packet in packets[:2]:
        every = np.frombuffer(packet[: 35 * 40], np.uint8).reshape(-1, 35)
        assert all(len(set(column.tolist())) > 4 for column in every.T)
    # everything that left is in the site's log
    left = read(tmp_path / "host" / "host.log")
    assert [(each.when, each.trip) for each in left] == [("alignment", k) for k in (0, 1, 3)]


def test_processes_are_told_why_nothing_is_aligned(keys, tmp_path, monkeypatch):
    text = {"host": "id,x\nab,0\n", "guest": "id,x\n1,0\n"}
    said, codes, _, error = over_machines(keys, tmp_path, text, monkeypatch)
    assert codes == [2, 2]
    public = "the ids of host are text, those of guest whole numbers"
    assert public in error
    assert "'ab'" not in error
    assert "host.csv, line 2, column 'id' has 'ab'" in said[0]  # only where it is
    assert public in said[1].replace("\n", " ")
    assert "ab'" not in said[1]
    assert not list(tmp_path.rglob("*.aligned.csv"))
