"""Rows of PyTorch, by PyTorch itself: runs where torch is installed (pip install torch)."""

import numpy as np
import pytest

import fedmin
from fedmin.data import Prepare, read

torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)


@pytest.fixture
def arrays(rng):
    x = rng.normal(size=(24, 2, 2)).astype(np.float32)
    return x, (x[:, 0, 0] + x[:, 1, 1] > 0).astype(np.int64)


class Own(Dataset):
    """Rows by number, as people write them: a tensor and a plain number."""

    def __init__(self, x, y):
        self.x, self.y = torch.from_numpy(x), y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Stream(IterableDataset):
    """Rows one after the other, nobody knows how many."""

    def __iter__(self):
        yield torch.zeros(2), 0


def test_datasets_loaders_and_tensors_are_the_arrays_in_them(arrays):
    x, y = arrays
    whole = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    sources = {
        "tensors": whole,
        "own": Own(x, y),
        "loader": DataLoader(whole, batch_size=5, shuffle=True, drop_last=True),
        "subset": Subset(whole, range(24)),
        "pair": (torch.from_numpy(x.reshape(24, 4)), torch.from_numpy(y)),
    }
    expected = read({"a": (x.reshape(24, 4), y)}, outcome="y").federation(Prepare(scale="none"))
    for name, source in sources.items():
        found = read({"a": source}, outcome="y").federation(Prepare(scale="none"))
        np.testing.assert_array_equal(found.pool.x.values, expected.pool.x.values, err_msg=name)
        np.testing.assert_array_equal(found.pool.y, expected.pool.y, err_msg=name)
    halves = {"a": Subset(whole, range(12)), "b": Subset(whole, range(12, 24))}
    sites = read(halves, outcome="y").federation()
    assert sites.sizes.tolist() == [12, 12]
    problem = fedmin.Logistic(4, l2=0.1, bias=True)
    result = fedmin.minimize(problem, sites, fedmin.FedNL(), rounds=5)
    assert result.model.predict(x.reshape(24, 4)).tolist() != [0] * 24


def test_a_loader_of_some_rows_is_not_read_as_all(arrays):
    whole = Own(*arrays)
    with pytest.raises(TypeError, match=r"DataLoader with a SubsetRandomSampler.*Subset"):
        read({"a": DataLoader(whole, sampler=SubsetRandomSampler(range(3)))}, outcome="y")


def test_rows_without_a_number_are_told_what_they_need():
    with pytest.raises(TypeError, match="site a: Stream is no table; give a file"):
        read({"a": DataLoader(Stream())}, outcome="y")
