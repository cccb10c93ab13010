"""Two parties' tables of the same people: python examples/parties/make.py [FOLDER]

The rows are those of examples/hospitals' north (RAND Health Insurance Experiment, which statsmodels
ships). The clinic knows health and whether a doctor was seen, the insurer knows contracts; each
lacks some people that the other has, and has them in an order of its own.
"""

import runpy
import sys
from pathlib import Path

import numpy as np
import pandas

HOSPITALS = Path(__file__).resolve().parents[1] / "hospitals" / "make.py"
COLUMNS = {
    "clinic": ["patient", "diseases", "limited", "health", "saw_doctor"],
    "insurer": ["patient", "coinsurance", "plan"],
}


def tables() -> dict[str, pandas.DataFrame]:
    """A table a party."""
    people = runpy.run_path(str(HOSPITALS))["tables"]()["north"]
    rng = np.random.default_rng(4)
    return {
        name: people.iloc[rng.permutation(len(people))[:380]][columns]
        for name, columns in COLUMNS.items()
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, table in tables().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        table.to_csv(folder / name / f"{name}.csv", index=False)
        print(f"{folder / name / name}.csv: {len(table)} rows")
