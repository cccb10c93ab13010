"""Catalogue entries: parties with an id column, a play, and the FedSSO tables.

Where a site has a plain file and some caches a compressed copy, the plain file's checksum is that
of the copy's content.
"""

from __future__ import annotations

from fedmin.data.catalogue.entries import Entry, Part, one_file, plain_or_packed

__all__ = ["PARTIES"]

_FATE = "https://raw.githubusercontent.com/FederatedAI/FATE/master/examples/data"
_CHAR_RNN = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data"
_FEDSSO = (
    "https://raw.githubusercontent.com/baobaoyeye/FedSSO-Datasets/"
    "0d324bb2150da9eea60775469d3ab7122805fab6/dataset"
)


def _party(name: str, packed: tuple[str, int], plain: tuple[str, int]) -> Part:
    role = name.rsplit("_", 1)[1]
    return plain_or_packed(
        role,
        (f"tabular/{name}.csv.xz", *packed),
        (f"tabular/{name}.csv", *plain, f"{_FATE}/{name}.csv"),
    )


_FATE_FACTS = (
    "https://github.com/FederatedAI/FATE/tree/master/examples/data",
    "FATE Apache-2.0; UCI source CC BY 4.0 (not checked)",
)
PARTIES = [
    Entry(
        "default_credit",
        "default of credit card clients, columns at two parties",
        "parties",
        "classification",
        30000,
        23,
        2,
        (
            _party(
                "default_credit_hetero_guest",
                ("ebd456f6c771abbfa8cc2282729b13e7e0fa7153162395863848d888778e67fe", 1010928),
                ("4fd6be40766423cd4fd567f3ed4162f9ec512388a2eab2f265f46247c5ae90b0", 4016372),
            ),
            _party(
                "default_credit_hetero_host",
                ("767566e23d7de7dda75f40dce6f17e727dee394f41b7d225fd7ff3c898a61374", 218080),
                ("36880a1b1e6a5b85bcb1e7d8b58cb2b024b45422ec29881c8df562e17c4bc6b7", 2987450),
            ),
        ),
        *_FATE_FACTS,
        "yeh2009comparisons",
    ),
    Entry(
        "breast_hetero",
        "breast cancer (WDBC), columns at two parties",
        "parties",
        "classification",
        569,
        30,
        2,
        (
            _party(
                "breast_hetero_guest",
                ("7dda0e5f7fa44e2b86a86ab54b0a6c09435ca9d19e9377d3e5a1253768a1300a", 21944),
                ("6b258b1514181bd645ea37a9ba3795a014075f465dfa51af08ecf19f068baeae", 57913),
            ),
            _party(
                "breast_hetero_host",
                ("a6ff72560426e3bcdc815e7c241bf7d1caa02c15720f40585cd4715ad4a07cda", 41580),
                ("8f9edc41763176ba12598f86646a177e347c1b85b5549896044f9532d964ea6f", 111542),
            ),
        ),
        *_FATE_FACTS,
        "street1993nuclear",
    ),
    Entry(
        "tinyshakespeare",
        "next character, one client a speaker",
        "play",
        "classification",
        90385,
        80,
        65,
        (
            plain_or_packed(
                "text",
                (
                    "text/tinyshakespeare.txt.xz",
                    "21b40ccf4999c004256d116655824719001352dbc22636354d9cd0c645d03a4a",
                    364404,
                ),
                (
                    "text/tinyshakespeare.txt",
                    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                    1115394,
                    f"{_CHAR_RNN}/tinyshakespeare/input.txt",
                ),
            ),
        ),
        "https://github.com/karpathy/char-rnn",
        "text public domain; repository MIT",
        "karpathy2015unreasonable",
    ),
]
_FEDSSO_FACTS = ("https://github.com/baobaoyeye/FedSSO-Datasets", "Apache-2.0", "ma2023fedsso")
PARTIES += [
    Entry(
        "fedsso_mnist",
        "FedSSO's label counts of 20 clients on MNIST (for CountTable)",
        "counts",
        "partition",
        70000,
        10,
        10,
        (
            one_file(
                "counts",
                "fedsso/mnist_ttn.config.json",
                "6fbd7760dfe96e0585e5ae86f7de163a703e232f66b7c8577c28b766d6d641d9",
                1073,
                f"{_FEDSSO}/mnist_ttn/config.json",
            ),
        ),
        *_FEDSSO_FACTS,
    ),
    Entry(
        "fedsso_fashion_mnist",
        "FedSSO's label counts of 3 clients on Fashion-MNIST (for CountTable)",
        "counts",
        "partition",
        70000,
        10,
        10,
        (
            one_file(
                "counts",
                "fedsso/fmnist_ttn_3.config.json",
                "b15c2647decaa43b8c46861e78bd339b8bbec1c92427605fd08ed12dfc9c0720",
                256,
                f"{_FEDSSO}/fmnist_ttn_3/config.json",
            ),
        ),
        *_FEDSSO_FACTS,
    ),
    Entry(
        "fedsso_results",
        "FedSSO's raw final results (derived; a CSV for the experiments)",
        "results",
        "partition",
        527,
        6,
        None,
        (
            one_file(
                "results",
                "fedsso/results_summary.csv",
                "34e1c1d7c0ed434b4b96ed25cce11cef51b96c3871e6ca31d7361433b4a1cfa0",
                59481,
            ),
        ),
        *_FEDSSO_FACTS,
    ),
]
