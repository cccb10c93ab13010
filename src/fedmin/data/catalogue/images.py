"""Catalogue entries: images. MNIST, Fashion-MNIST, EMNIST, CIFAR-10.

Checksums of Fashion-MNIST, EMNIST and the CIFAR-10 archive are those that TensorFlow Datasets
publishes; the others were computed from the official files.
"""

from __future__ import annotations

from fedmin.data.catalogue.entries import Entry, Part, Variant, one_file

__all__ = ["IMAGES"]

_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_EMNIST = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"


def _idx(folder: str, base: str, sums: dict[str, tuple[str, int]]) -> tuple[Part, ...]:
    return tuple(
        one_file(role, f"{folder}/{file}", *sums[role], f"{base}/{file}")
        for role, file in (
            ("train_images", "train-images-idx3-ubyte.gz"),
            ("train_labels", "train-labels-idx1-ubyte.gz"),
            ("test_images", "t10k-images-idx3-ubyte.gz"),
            ("test_labels", "t10k-labels-idx1-ubyte.gz"),
        )
    )


def _emnist(selection: str) -> tuple[Part, ...]:
    archive_sum = "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
    parts = []
    for role, tail in (
        ("train_images", "train-images-idx3-ubyte.gz"),
        ("train_labels", "train-labels-idx1-ubyte.gz"),
        ("test_images", "test-images-idx3-ubyte.gz"),
        ("test_labels", "test-labels-idx1-ubyte.gz"),
    ):
        file = f"emnist-{selection}-{tail}"
        whole = Variant("emnist/gzip.zip", archive_sum, 561753746, _EMNIST, f"gzip/{file}")
        parts.append(Part(role, (whole, Variant(f"emnist/{file}"))))
    return tuple(parts)


def _cifar(batch: str, packed: tuple[str, int] | None, plain: str | None) -> Part:
    # the archive is the only address; the unpacked batches count when they lie in the cache
    folder, archive_sum = (
        "cifar-10-batches-bin",
        ("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    )
    member = f"{folder}/{batch}.bin"
    variants = [Variant(f"{member}.xz", *packed)] if packed else []
    variants.append(Variant(member, plain, 30730000))
    variants.append(Variant("cifar-10-binary.tar.gz", archive_sum, 170052171, _CIFAR, member))
    return Part(batch, tuple(variants))


def _images(name, summary, rows, classes, parts, source, license, citation) -> Entry:
    return Entry(
        name,
        summary,
        "images",
        "classification",
        rows,
        784,
        classes,
        parts,
        source,
        license,
        citation,
    )


_CIFAR_TEST = _cifar(
    "test_batch",
    ("89f4e12a985a64b8729884fe56b06dab93e30da267c8957ee031f6fc6d96a18f", 23226456),
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
_CIFAR_FIRST = _cifar(
    "data_batch_1",
    ("7854ef2eb3bf1c9f426c079ccd35bea5dda80aca65679f9af02698fb449811b1", 23206276),
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
)


IMAGES = [
    _images(
        "mnist",
        "handwritten digits, 28 x 28",
        60000,
        10,
        _idx(
            "mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            {
                "train_images": (
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    9912422,
                ),
                "train_labels": (
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    28881,
                ),
                "test_images": (
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    1648877,
                ),
                "test_labels": (
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    4542,
                ),
            },
        ),
        "http://yann.lecun.com/exdb/mnist/",
        "usually quoted as CC BY-SA 3.0 (not checked)",
        "lecun1998gradient",
    ),
    _images(
        "fashion_mnist",
        "clothes, 28 x 28, a drop-in for MNIST",
        60000,
        10,
        _idx(
            "fashion-mnist",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            {
                "train_images": (
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    26421880,
                ),
                "train_labels": (
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    29515,
                ),
                "test_images": (
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    4422102,
                ),
                "test_labels": (
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                    5148,
                ),
            },
        ),
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        "xiao2017fashion",
    ),
]
IMAGES += [
    _images(
        f"emnist_{selection}",
        f"handwritten {what}, 28 x 28",
        rows,
        classes,
        _emnist(selection),
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        "public domain (NIST)",
        "cohen2017emnist",
    )
    for selection, what, rows, classes in (
        ("balanced", "letters and digits, balanced", 112800, 47),
        ("byclass", "letters and digits, all 62 classes", 697932, 62),
        ("bymerge", "letters and digits, look-alike cases merged", 697932, 47),
        ("digits", "digits", 240000, 10),
        ("letters", "letters, cases merged", 124800, 26),
        ("mnist", "digits as in MNIST", 60000, 10),
    )
]
_CIFAR_FACTS = (
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    "none stated",
    "krizhevsky2009learning",
)
IMAGES += [
    Entry(
        "cifar10",
        "color photographs, 32 x 32",
        "cifar",
        "classification",
        50000,
        3072,
        10,
        (_CIFAR_FIRST, *(_cifar(f"data_batch_{i}", None, None) for i in range(2, 6)), _CIFAR_TEST),
        *_CIFAR_FACTS,
    ),
    Entry(
        "cifar10_batch1",
        "the first of CIFAR-10's five training batches, with the whole test batch",
        "cifar",
        "classification",
        10000,
        3072,
        10,
        (_CIFAR_FIRST, _CIFAR_TEST),
        *_CIFAR_FACTS,
    ),
]
