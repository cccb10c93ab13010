"""Readers: round trips of small files made in each format, and damaged or foreign files."""

import bz2
import csv
import gzip
import io
import lzma
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.datasets import dump_svmlight_file

from fedmin.data import (
    DataFileError,
    join_parties,
    read_cifar10,
    read_idx,
    read_idx_images,
    read_libsvm,
    read_party,
    read_speeches,
)
from fedmin.data.formats import files

PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
FINITE = {
    f"f{size}": st.floats(width=8 * size, allow_nan=False, allow_infinity=False) for size in (4, 8)
}
quick = settings(max_examples=25, deadline=None)


@quick
@given(
    array=st.sampled_from(["u1", "i1", "i2", "i4", "f4", "f8"]).flatmap(
        lambda kind: hnp.arrays(
            np.dtype(kind), hnp.array_shapes(max_dims=3, max_side=4), elements=FINITE.get(kind)
        )
    ),
    packing=st.sampled_from(sorted(PACKERS)),
)
def test_idx_round_trip(tmp_path_factory, write, array, packing):
    path = tmp_path_factory.mktemp("idx") / f"file{packing}"
    path.write_bytes(PACKERS[packing](write.idx(array)))
    np.testing.assert_array_equal(read_idx(path), array)


def test_emnist_images_are_turned_upright(tmp_path, write):
    image = np.arange(6, dtype=np.uint8).reshape(2, 3)
    path = tmp_path / "images"
    path.write_bytes(write.idx(image.T[None]))
    np.testing.assert_array_equal(read_idx_images(path, transposed=True)[0], image)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected an idx file"),
        (b"<html>", "expected an idx file .* found b'<htm'"),
        (b"\0\0\x08\x03\0\0", "a header of 16 bytes, found 6"),
        (
            lambda write: write.idx(np.zeros((2, 2, 2), np.uint8))[:-1],
            "8 bytes for shape .* found 7 bytes",
        ),
        (lambda write: write.idx(np.zeros(4, np.uint8)), "3 axes, found one of 1"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, *[2**32 - 1] * 3), "bytes for shape"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "a whole gzip file"),
        (lzma.compress(b"x" * 1000)[:-9], "a whole xz file"),
        (bz2.compress(b"x" * 1000)[:-9], "a whole bzip2 file"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, write, content, message):
    path = tmp_path / "broken-idx3"
    path.write_bytes(content(write) if callable(content) else content)
    with pytest.raises(DataFileError, match=message) as caught:
        read_idx_images(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("packing", sorted(PACKERS))
def test_cifar_round_trip(tmp_path, write, packing):
    images, labels = write.batch(3)
    path = tmp_path / f"data_batch_1.bin{packing}"
    path.write_bytes(PACKERS[packing](write.cifar(images, labels)))
    got, also = read_cifar10([path, path])
    np.testing.assert_array_equal(got, np.concatenate([images, images]))
    np.testing.assert_array_equal(also, np.concatenate([labels, labels]))


@pytest.mark.parametrize("kind", ["w:gz", "w:bz2", "zip"])
def test_cifar_inside_archives(tmp_path, write, kind):
    batches = {f"cifar-10-batches-bin/b{i}.bin": write.batch(2, i) for i in range(3)}
    path = tmp_path / "archive"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, batch in batches.items():
                archive.writestr(name, write.cifar(*batch))
    else:
        with tarfile.open(path, kind) as archive:
            for name, batch in batches.items():
                content = write.cifar(*batch)
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    wanted = list(batches)[::2][::-1]
    images, labels = read_cifar10(path, wanted)
    np.testing.assert_array_equal(images, np.concatenate([batches[n][0] for n in wanted]))
    np.testing.assert_array_equal(labels, np.concatenate([batches[n][1] for n in wanted]))
    with pytest.raises(DataFileError, match=r"the member nowhere\.bin"):
        read_cifar10(path, ["nowhere.bin"])


def test_damaged_cifar_files_are_named(tmp_path):
    path = tmp_path / "b.bin"
    path.write_bytes(bytes(3072))
    with pytest.raises(DataFileError, match="records of 3073 bytes, found 3072"):
        read_cifar10(path)
    path.write_bytes(bytes([11]) + bytes(3072))
    with pytest.raises(DataFileError, match="found label 11 in record 0"):
        read_cifar10(path)
    with pytest.raises(DataFileError, match="a zip or tar archive"):
        read_cifar10(path, ["b.bin"])
    whole = tmp_path / "a.tar.gz"
    with tarfile.open(whole, "w:gz") as archive:
        archive.add(path, "b.bin")
    whole.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(DataFileError):
        read_cifar10(whole, ["b.bin"])


@quick
@given(
    dense=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 9)),
        elements=st.sampled_from([0.0, 0.0, 1.0, -2.5, 0.125, 1e-3]),
    ),
    packing=st.sampled_from(sorted(PACKERS)),
    data=st.data(),
)
def test_libsvm_round_trip(tmp_path_factory, dense, packing, data):
    labels = data.draw(hnp.arrays(np.float64, len(dense), elements=st.sampled_from([-1.0, 1.0, 2])))
    buffer = io.BytesIO()
    dump_svmlight_file(sp.csr_matrix(dense), labels, buffer, zero_based=False)
    path = tmp_path_factory.mktemp("svm") / f"file{packing}"
    path.write_bytes(PACKERS[packing](buffer.getvalue()))
    x, y = read_libsvm(path, features=dense.shape[1])
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x.toarray(), dense)
    np.testing.assert_array_equal(y, labels)


def test_libsvm_keeps_explicit_zeros_and_copes_with_disorder(tmp_path):
    path = tmp_path / "a"
    path.write_text("1 1:0.0 3:2\n")
    assert read_libsvm(path)[0].nnz == 2
    # unsorted, and an entry repeated with the same value, as in the public Reuters archive
    path.write_text("# comment\n1.5 3:2 1:1\n-1 2:7 2:7 # end\n\n")
    x, y = read_libsvm(path)
    assert x.toarray().tolist() == [[1, 0, 2], [0, 7, 0]]
    assert y.tolist() == [1.5, -1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "an empty file"),
        ("hello world\n", "line 1, 'hello world'"),
        ("1 1:2\n2 x:3\n", "line 2"),
        ("1 1:2\n2 5:\n", "line 2"),
        ("1 1:2\n1 7\n", "has no colon"),
        ("1 0:2\n", "the first column is 1"),
        ("1 2:1 2:3\n", "column 2 twice with different values"),
        ("1 9:1\n", "at most 4 features, found index 9"),
        ("# nothing\n", "no rows"),
        ("1 2:1\n1 2147483648:1\n", "line 2.*index 2147483648; the last column is 2147483647"),
        (f"1 {'9' * 30}:1\n", "line 1.*the last column is 2147483647"),
        ("1 2:1\n\n1 2:nan\n", "line 3.*'nan' is no finite number"),
        ("1 2:1\n-inf 2:1\n", "line 2.*'-inf' is no finite number"),
        ("1 2:1e39\n", "line 1.*1e.39 is beyond single precision"),
        ("1 1_0:1\n", "line 1.*index 1_0"),
        ("1 1:1_0\n", "line 1.*'1_0' is no finite number"),
    ],
)
def test_damaged_libsvm_files_are_named(tmp_path, content, message):
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(DataFileError, match=message) as caught:
        read_libsvm(path, features=4)
    assert str(path) in str(caught.value)


@quick
@given(
    guest=st.lists(st.integers(0, 15), min_size=1, unique=True),
    host=st.lists(st.integers(0, 15), min_size=1, unique=True),
)
def test_parties_join_by_id(tmp_path_factory, guest, host):
    folder = tmp_path_factory.mktemp("parties")
    files = {"guest": (guest, ["id", "y", "a"]), "host": (host, ["id", "b", "c"])}
    for name, (ids, header) in files.items():
        with lzma.open(folder / f"{name}.csv.xz", "wt", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([key, key % 2, key / 4] for key in ids)
    parties = {name: read_party(folder / f"{name}.csv.xz") for name in files}
    common = [key for key in guest if key in host]
    if not common:
        with pytest.raises(ValueError, match="no id is common"):
            join_parties(parties)
        return
    if set(guest) != set(host):
        with pytest.raises(ValueError, match="rows do not line up"):
            join_parties(parties)
    joined = join_parties(parties, common=True)
    assert joined.ids.tolist() == [str(key) for key in common]
    assert joined.y.tolist() == [key % 2 for key in common]
    assert joined.x.tolist() == [[key / 4, key % 2, key / 4] for key in common]
    assert {name: columns.tolist() for name, columns in joined.columns.items()} == {
        "guest": [0],
        "host": [1, 2],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a CSV header and rows"),
        (b"name,x0\n1,2\n", "an id column 'id'"),
        (b"id,x0\n1,2\n1,3\n", "id '1' more than once"),
        (b"id,x0,x0\n1,2,3\n", "each column name once"),
        (b"id,x0\n1,2,3\n", "2 fields, found 3 in line 2"),
        (b"id,x0\n1,2\n4,oops\n", "numbers in column 'x0', found 'oops' in line 3"),
        (b"id,x0\n1,2\n\n4,nan\n", "numbers in column 'x0', found 'nan' in line 4"),
        (b"id,y,x0\n1,inf,2\n", "numbers in column 'y', found 'inf' in line 2"),
        (b"id,x0\n1,1_0\n", "numbers in column 'x0', found '1_0' in line 2"),
        (b"id,x0\n1,1e39\n", "single precision in column 'x0', found 1e.39 in line 2"),
        (b"id,x0\n1,\x00\n", "party.csv"),
        (b"id,x0\n1,'" + b"9" * 200_000 + b"'\n", "line 2: expected CSV, found field larger"),
        (b"id,y\n1,2\n", "a feature column"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_damaged_parties_are_named(tmp_path, content, message):
    path = tmp_path / "party.csv"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        read_party(path)


def test_two_label_parties_are_refused(tmp_path):
    path = tmp_path / "party.csv"
    path.write_text("id,y,x0\n1,0,2\n")
    party = read_party(path)
    with pytest.raises(ValueError, match="labels at one and two"):
        join_parties({"one": party, "two": party})


def test_speeches(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("Ann:\nHello:\nthere.\n\nBob:\nHi.\n\nAnn:\nBye.\n")
    assert read_speeches(path) == {"Ann": ["Hello:\nthere.", "Bye."], "Bob": ["Hi."]}
    path.write_text("no speaker here")
    with pytest.raises(DataFileError, match="begin with 'Speaker:'"):
        read_speeches(path)
    path.write_bytes(b"\xff\xff")
    with pytest.raises(DataFileError, match="not UTF-8"):
        read_speeches(path)


@pytest.mark.parametrize("kind", [".gz", ".bz2", ".xz", ".zip", ".tar.gz"])
def test_a_file_that_becomes_a_hundred_times_larger_is_not_unpacked(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(files, "LEAST", 1 << 16)
    data, path, member = bytes(1 << 24), tmp_path / f"bomb{kind}", None
    if kind == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member := "inside", data)
    elif kind == ".tar.gz":
        (tmp_path / "inside").write_bytes(data)
        with tarfile.open(path, "w:gz") as archive:
            archive.add(tmp_path / "inside", member := "inside")
    else:
        path.write_bytes(PACKERS[kind](data))
    with pytest.raises(DataFileError, match=r"at most 200 times its size, found [\d,]+ bytes that"):
        files.read_bytes(path, member)
    if member is None:  # and what is not too large is whole
        path.write_bytes(PACKERS[kind](data[:1000]) * 2)  # two streams are one file
        assert files.read_bytes(path) == data[:2000]


def test_an_idx_file_with_numbers_that_are_not_finite(tmp_path, write):
    (tmp_path / "a").write_bytes(write.idx(np.array([1.0, np.nan], np.float32)))
    with pytest.raises(DataFileError, match=r"finite numbers, found one that is not, at \[1\]"):
        read_idx(tmp_path / "a")
