"""Three hospitals' tables, made of public data: python examples/hospitals/make.py [FOLDER]

The rows are of the RAND Health Insurance Experiment, which statsmodels ships (public domain): did a
person see a doctor in the year? The split over hospitals, the gaps and the ids are ours, by a fixed
seed: the files beside this one are what it writes.
"""

import sys
from pathlib import Path

import numpy as np
import pandas
from statsmodels.datasets import randhie

ROWS = {"north": 420, "south": 300, "west": 180}
HEALTH = {"hlthg": "good", "hlthf": "fair", "hlthp": "poor"}


def tables() -> dict[str, pandas.DataFrame]:
    """A table a hospital; sicker people are more likely to be in the west."""
    rng = np.random.default_rng(18)
    raw = randhie.load_pandas().data
    raw = raw.iloc[rng.permutation(len(raw))[:4000]].reset_index(drop=True)
    health = np.full(len(raw), "excellent", object)
    for column, word in HEALTH.items():
        health[raw[column] == 1] = word
    made = pandas.DataFrame({
        "patient": [f"P{i:05d}" for i in range(len(raw))],
        "diseases": raw["disea"].round(1), "limited": raw["physlm"].round(2),
        "coinsurance": raw["lncoins"].round(3), "health": health,
        "plan": np.where(raw["idp"] == 1, "deductible", "free"),
        "saw_doctor": np.where(raw["mdvis"] > 0, "yes", "no"),
    })  # fmt: skip
    for column, share in (("diseases", 0.06), ("health", 0.04)):
        made.loc[rng.random(len(made)) < share, column] = np.nan
    order = np.argsort(raw["disea"].to_numpy() + 12 * rng.normal(size=len(raw)))
    places = {"north": order[:2000], "south": order[1000:3000], "west": order[2500:]}
    found, taken = {}, set()
    for name, rows in ROWS.items():
        free = [int(i) for i in rng.permutation(places[name]) if int(i) not in taken][:rows]
        taken |= set(free)
        found[name] = made.iloc[sorted(free)]
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, table in tables().items():
        table.to_csv(folder / f"{name}.csv", index=False)
        print(f"{folder / name}.csv: {len(table)} rows")
