"""Catalogue entries: LIBSVM text.

Where a site has a plain file and some caches a compressed copy, the plain file's checksum is that
of the copy's content.
"""

from __future__ import annotations

from fedmin.data.catalogue.entries import Entry, Part, Variant, one_file, plain_or_packed

__all__ = ["LIBSVM"]

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_REUTERS = "https://leon.bottou.org/_media/papers/lasvm-reuters.tar.bz2"
_UCI = "UCI, CC BY 4.0 (not checked)"
LIBSVM = [
    Entry(
        "a9a",
        "UCI Adult: does a person earn more than 50,000 a year?",
        "libsvm",
        "classification",
        32561,
        123,
        2,
        (
            plain_or_packed(
                "train",
                (
                    "libsvm/a9a.bz2",
                    "1dcb2b4aedea0b5a9e964192dd211675d16cf05ab6477ddd0702d87c1d1af8da",
                    100552,
                ),
                (
                    "libsvm/a9a",
                    "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
                    2329875,
                    f"{_LIBSVM}/binary/a9a",
                ),
            ),
            plain_or_packed(
                "test",
                (
                    "libsvm/a9a.t.bz2",
                    "8772e9b9688f4e3500aa95fd00ea07b86087f934d3edc902ee3f8385acdeddc2",
                    50567,
                ),
                (
                    "libsvm/a9a.t",
                    "1f7bae8e9729ad2bf9d18f66e5fa622e503e615114f92c37b274dfd24f2e5725",
                    1164633,
                    f"{_LIBSVM}/binary/a9a.t",
                ),
            ),
        ),
        f"{_LIBSVM}/binary.html#a9a",
        _UCI,
        "kohavi1996scaling",
    ),
    Entry(
        "mushrooms",
        "edible or poisonous",
        "libsvm",
        "classification",
        8124,
        112,
        2,
        (
            plain_or_packed(
                "train",
                (
                    "libsvm/mushrooms.bz2",
                    "a039b9f09528a5dcfb76e0e3d32eb29b10aa6852485d90fc79cc8dffd3f192e2",
                    16038,
                ),
                (
                    "libsvm/mushrooms",
                    "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
                    879712,
                    f"{_LIBSVM}/binary/mushrooms",
                ),
            ),
        ),
        f"{_LIBSVM}/binary.html#mushrooms",
        _UCI,
        "schlimmer1987mushroom",
    ),
    # the copies in some caches were written again by another project: same rows, other bytes; the
    # site's own files therefore go by another name
    Entry(
        "ijcnn1",
        "IJCNN 2001 challenge, 22 features",
        "libsvm",
        "classification",
        49990,
        22,
        2,
        (
            Part(
                "train",
                (
                    Variant(
                        "libsvm/ijcnn1.bz2",
                        "b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
                        1395175,
                    ),
                    Variant("libsvm/ijcnn1.site.bz2", url=f"{_LIBSVM}/binary/ijcnn1.bz2"),
                ),
            ),
            Part(
                "test",
                (
                    Variant(
                        "libsvm/ijcnn1.t.bz2",
                        "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24",
                        2597597,
                    ),
                    Variant("libsvm/ijcnn1.t.site.bz2", url=f"{_LIBSVM}/binary/ijcnn1.t.bz2"),
                ),
            ),
        ),
        f"{_LIBSVM}/binary.html#ijcnn1",
        "none stated",
        "prokhorov2001ijcnn",
    ),
    Entry(
        "news20",
        "newsgroup posts, sparse word counts",
        "libsvm",
        "classification",
        15935,
        62061,
        20,
        (
            one_file(
                "train",
                "libsvm/news20.bz2",
                "8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9",
                2376572,
                f"{_LIBSVM}/multiclass/news20.bz2",
            ),
        ),
        f"{_LIBSVM}/multiclass.html#news20",
        "none stated",
        "lang1995newsweeder",
    ),
    Entry(
        "reuters",
        "Reuters-21578 money-fx, sparse text",
        "libsvm",
        "classification",
        7770,
        8315,
        2,
        (
            Part(
                "train",
                (
                    Variant(
                        "libsvm/reuters.trn.bz2",
                        "e77a3368662c02caebe0d9cbcc97d856019bcfb33a8e9b7c48e0b51ee4cdfb60",
                        3107267,
                    ),
                    Variant(
                        "libsvm/lasvm-reuters.tar.bz2", url=_REUTERS, member="reuters/money-fx.trn"
                    ),
                ),
            ),
            Part(
                "test",
                (
                    Variant(
                        "libsvm/reuters.tst.bz2",
                        "3d699b9644a38160bf3228059d18fbfc07474057d8e82d512576a2b82d72e211",
                        763856,
                    ),
                    Variant(
                        "libsvm/lasvm-reuters.tar.bz2", url=_REUTERS, member="reuters/money-fx.tst"
                    ),
                ),
            ),
        ),
        "https://leon.bottou.org/papers",
        "Reuters-21578: research use (not checked)",
        "bordes2005fast",
    ),
    Entry(
        "rcv1",
        "Reuters newswire, sparse tf-idf",
        "libsvm",
        "classification",
        20242,
        47236,
        2,
        (
            one_file(
                "train",
                "libsvm/rcv1_train.binary.bz2",
                None,
                13730096,
                f"{_LIBSVM}/binary/rcv1_train.binary.bz2",
            ),
        ),
        f"{_LIBSVM}/binary.html#rcv1.binary",
        "none stated",
        "lewis2004rcv1",
    ),
    Entry(
        "e2006",
        "E2006-tfidf: volatility of stock returns from financial reports",
        "libsvm",
        "regression",
        16087,
        150360,
        None,
        (
            one_file(
                "train", "libsvm/E2006.train.bz2", url=f"{_LIBSVM}/regression/E2006.train.bz2"
            ),
            one_file("test", "libsvm/E2006.test.bz2", url=f"{_LIBSVM}/regression/E2006.test.bz2"),
        ),
        f"{_LIBSVM}/regression.html#E2006-tfidf",
        "none stated",
        "kogan2009predicting",
    ),
]
