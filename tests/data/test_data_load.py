"""Loading: embedded sets, the real public files, and files made in the same formats."""

import io
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import datasets as theirs
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from fedmin.data import CATALOGUE, DATASETS, ChecksumError, DataFileError, datasets, load

EMBEDDED = ("digits", "breast_cancer", "diabetes", "wine")
unknown = pytest.mark.filterwarnings("ignore::fedmin.data.UnknownChecksum")


@pytest.fixture
def unchecked(monkeypatch):
    """Forget the checksums of an entry, so that made files of its format can stand in for it."""

    def forget(name):
        for part in CATALOGUE[name].parts:
            for variant in part.variants:
                monkeypatch.setitem(variant.__dict__, "sha256", None)

    return forget


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_are_sklearns(name):
    bunch = getattr(theirs, f"load_{name}")()
    whole = load(name, test_fraction=0)
    scale = 16.0 if name == "digits" else 1.0
    np.testing.assert_allclose(whole.x, bunch.data / scale, rtol=1e-6)
    np.testing.assert_allclose(whole.y, bunch.target)
    facts = DATASETS[name]
    assert (whole.rows, whole.features, whole.classes) == (
        facts.rows,
        facts.features,
        facts.classes,
    )
    parted = load(name)
    assert parted.test.rows == round(0.2 * whole.rows)


def test_unknown_names_and_options():
    with pytest.raises(ValueError, match="did you mean 'breast_cancer'"):
        load("breast-cancer")
    with pytest.raises(ValueError, match="digits: unknown option 'test_fracton'; did you mean"):
        load("digits", test_fracton=0.1)
    with pytest.raises(ValueError, match="quadratics: unknown option 'kappa'"):
        load("quadratics", kappa=3)
    with pytest.raises(ValueError, match="not a table but"):
        load("fedsso_mnist")


def test_list_of_datasets():
    names = [line.name for line in datasets()]
    assert len(set(names)) == len(names)
    assert {"digits", "mnist", "cifar10", "rcv1", "e2006", "emnist_byclass", "fedprox"} <= set(
        names
    )
    assert all(line.summary for line in datasets())


def test_import_is_cheap():
    heavy = ("jax", "sklearn", "pooch", "rich", "requests", "pandas")
    # the package's own __init__ may import jax; what is asked here is what fedmin.data adds
    code = (
        "import sys\nbefore = set(sys.modules)\nimport fedmin\nmiddle = set(sys.modules)\n"
        f"import fedmin.data\nprint([m for m in {heavy!r} if m in set(sys.modules) - middle])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# real files -------------------------------------------------------------------------------------


def test_mnist(public_files):
    table = load("mnist")
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    held = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(table.y).tolist() == counts
    assert np.bincount(table.test.y).tolist() == held
    assert table.image_shape == (28, 28, 1)
    assert (table.x.min(), table.x.max()) == (0.0, 1.0)


def test_cifar10_batch(public_files):
    table = load("cifar10_batch1")
    assert np.bincount(table.y).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert np.bincount(table.test.y).tolist() == [1000] * 10
    assert table.image_shape == (32, 32, 3)


@pytest.mark.parametrize(
    ("name", "shape", "nonzeros", "counts", "held"),
    [
        ("a9a", (32561, 123), 451592, [24720, 7841], [12435, 3846]),
        ("mushrooms", (8124, 112), 170604, [3916, 4208], None),
        ("ijcnn1", (49990, 22), 649870, [45137, 4853], [82989, 8712]),
        ("reuters", (7770, 8315), 339837, [7232, 538], [3120, 179]),
        ("news20", (15935, 62061), 1272569, None, None),
    ],
)
def test_libsvm_sets(public_files, name, shape, nonzeros, counts, held):
    table = load(name, dense=False)
    assert table.sparse
    assert table.x.shape == shape
    assert table.x.nnz == nonzeros  # explicit zeros are counted by the source, and kept
    assert table.x.indices.dtype == np.int32
    if counts is not None:
        assert np.bincount(table.y).tolist() == counts
    else:
        assert (np.bincount(table.y) >= 780).all()
        assert table.classes == 20
    if held is not None:
        assert np.bincount(table.test.y).tolist() == held
    else:
        assert table.test is None


def test_libsvm_dense_is_sklearns(public_files):
    table = load("a9a")
    x, y = load_svmlight_file(str(public_files / "libsvm/a9a.bz2"), n_features=123)
    np.testing.assert_array_equal(table.x, x.toarray().astype(np.float32))
    np.testing.assert_array_equal(table.y, y > 0)
    assert table.meta["labels"] == [-1.0, 1.0]
    parted = load("mushrooms", test_fraction=0.25)
    assert (parted.rows, parted.test.rows) == (6093, 2031)


def test_vertical_sets(public_files):
    table = load("default_credit")
    assert np.bincount(table.y).tolist() == [23364, 6636]
    assert {name: len(owned) for name, owned in table.columns.items()} == {"guest": 13, "host": 10}
    small = load("breast_hetero", test_fraction=0.2)
    assert {name: len(owned) for name, owned in small.columns.items()} == {"guest": 10, "host": 20}
    whole = load("breast_hetero")
    assert np.bincount(whole.y).tolist() == [212, 357]
    # the same patients as in scikit-learn, standardized there with n - 1 or n: compare correlations
    bunch = theirs.load_breast_cancer()
    order = np.argsort(whole.ids.astype(int))
    found = whole.x[order, 10]  # host.x0
    best = max(abs(np.corrcoef(found, column)[0, 1]) for column in bunch.data.T)
    assert best == pytest.approx(1.0, abs=1e-4)


def test_tinyshakespeare(public_files):
    table = load("tinyshakespeare", window=20, stride=50)
    assert table.classes == 65
    symbols = table.meta["symbols"]
    first = "".join(symbols[int(code)] for code in table.x[0]) + symbols[table.y[0]]
    assert first == "Before we proceed any"
    assert table.ids[0] == "First Citizen"
    assert np.unique(table.ids).size > 145
    assert table.test.rows > 0
    with pytest.raises(ValueError, match="window=0"):
        load("tinyshakespeare", window=0)


# made files in the formats of what cannot be had here --------------------------------------------


@unknown
@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("selection", ["letters", "byclass"])
def test_emnist(empty_cache, write, unchecked, selection, loose):
    name = f"emnist_{selection}"
    unchecked(name)
    rng = np.random.default_rng(0)
    folder = empty_cache / "emnist"
    folder.mkdir()
    shift, classes = (1, 26) if selection == "letters" else (0, 62)
    made = {}
    for part, n in (("train", 5), ("test", 3)):
        images = rng.integers(0, 256, (n, 28, 28), np.uint8)
        labels = rng.integers(0, classes, n, np.uint8)
        made[part] = (images, labels)
        turned = write.idx(images.transpose(0, 2, 1))
        files = {"images-idx3": turned, "labels-idx1": write.idx((labels + shift).astype(np.uint8))}
        for kind, content in files.items():
            file = f"emnist-{selection}-{part}-{kind}-ubyte.gz"
            if loose:
                (folder / file).write_bytes(content)
            else:
                with zipfile.ZipFile(folder / "gzip.zip", "a") as archive:
                    archive.writestr(f"gzip/{file}", content)
    table = load(name)
    for part, got in (("train", table), ("test", table.test)):
        np.testing.assert_allclose(got.images[..., 0] * 255, made[part][0], atol=1e-4)
        np.testing.assert_array_equal(got.y, made[part][1])
    assert table.classes == classes


@unknown
def test_whole_cifar10_from_its_archive(empty_cache, write, unchecked):
    unchecked("cifar10")
    batches = {f"data_batch_{i}": write.batch(2, i) for i in range(1, 6)}
    batches["test_batch"] = write.batch(3, 9)
    with tarfile.open(empty_cache / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, batch in batches.items():
            content = write.cifar(*batch)
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    table = load("cifar10")
    wanted = np.concatenate([batches[f"data_batch_{i}"][0] for i in range(1, 6)])
    np.testing.assert_allclose(table.images * 255, wanted, atol=1e-4)
    np.testing.assert_array_equal(table.test.y, batches["test_batch"][1])


@unknown
def test_e2006_regression_stays_sparse(empty_cache):
    folder = empty_cache / "libsvm"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, n in (("train", 6), ("test", 2)):
        x = sp.random_array((n, 150360), density=1e-4, rng=rng, format="csr")
        dump_svmlight_file(
            x, rng.normal(size=n), str(folder / f"E2006.{part}.bz2"), zero_based=False
        )
    table = load("e2006")
    assert table.sparse
    assert table.classes is None
    assert (table.features, table.test.features) == (150360, 150360)
    assert table.y.dtype == np.float32


@unknown
def test_rcv1_with_foreign_labels(empty_cache):
    folder = empty_cache / "libsvm"
    folder.mkdir()
    (folder / "rcv1_train.binary.bz2").write_text("-1 1:1\n1 2:1\n0 3:1\n")
    with pytest.raises(DataFileError, match="expected 2 different labels, found 3"):
        load("rcv1")
    (folder / "rcv1_train.binary.bz2").write_text("-1 1:1\n1 47236:1\n")
    assert load("rcv1").x.shape == (2, 47236)


def test_damaged_mnist_is_never_read(empty_cache):
    folder = empty_cache / "mnist"
    folder.mkdir()
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"not MNIST")
    with pytest.raises(ChecksumError, match=r"train-images-idx3-ubyte\.gz"):
        load("mnist")
