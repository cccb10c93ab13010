"""Homomorphic sums: seconds and bytes of each step, and the errors.

python -m benchmarks.homomorphic                    8,000 numbers of each of 10 clients
python -m benchmarks.homomorphic --numbers 1000000
"""

import argparse
import time
from statistics import median

import numpy as np

from fedmin.channels import ckks


def timed(work, times=5):
    """What it gives, and the median of its seconds."""
    spent = []
    for _ in range(times):
        begin = time.perf_counter()
        found = work()
        spent.append(time.perf_counter() - begin)
    return found, median(spent)


def main() -> None:
    """Print a line a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numbers", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=10)
    given = parser.parse_args()
    numbers = np.random.default_rng(0).normal(size=(given.clients, given.numbers))
    key, seconds = timed(ckks.Secret)
    print(f"a key                  {1e3 * seconds:9.1f} ms {ckks.KEY / 1e3:10.1f} kB")
    words = key.words()
    _, seconds = timed(lambda: ckks.Secret(words))
    print(f"the key read           {1e3 * seconds:9.1f} ms")
    one, seconds = timed(lambda: key.closed(numbers[0]))
    print(f"a client encrypts      {1e3 * seconds:9.1f} ms {one.nbytes / 1e3:10.1f} kB")
    closed = [key.closed(each) for each in numbers]
    total, seconds = timed(lambda: ckks.added(closed))
    print(f"the server adds {given.clients:4}   {1e3 * seconds:9.1f} ms")
    found, seconds = timed(lambda: key.opened(total, given.numbers))
    print(f"a client opens         {1e3 * seconds:9.1f} ms {8 * given.numbers / 1e3:10.1f} kB")
    exact = numbers.sum(axis=0)
    print(f"error of the sum {np.abs(found - exact).max():.1e}, with the noise "
          f"{np.abs(ckks.flooded(found) - exact).max():.1e}")  # fmt: skip
    noughts = [key.closed(np.zeros(ckks.SLOTS)) for _ in numbers]
    own = key.opened(ckks.added(noughts), ckks.SLOTS)
    times = np.log2(ckks.FLOOD / own.std())
    print(f"the encryption's own error {own.std():.1e}: the noise is 2^{times:.1f} times as large")


if __name__ == "__main__":
    main()
