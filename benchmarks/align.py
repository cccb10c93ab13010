"""Aligning the rows of two parties: seconds and bytes of each step.

python -m benchmarks.align                    1,000,000 ids at each of two parties, half in common
python -m benchmarks.align --ids 10000        fewer
"""

import argparse
import resource
import time

from fedmin.privacy.alignment import Ids, Leader, Member


def main() -> None:
    """Print a line a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000_000)
    count = parser.parse_args().ids
    begin = time.perf_counter()

    def line(what: str, data: bytes = b"") -> None:
        nonlocal begin
        spent, begin = time.perf_counter() - begin, time.perf_counter()
        print(f"{what:<42} {spent:9.2f} s {len(data) / 1e6:9.2f} MB", flush=True)

    whole = time.perf_counter()
    leader = Leader(Ids.of("a", range(count)), ["b"])
    member = Member(Ids.of("b", range(count // 2, count // 2 + count)), "a")
    line(f"{count:,} ids at each of two parties")
    question = leader.question()
    line("leader: its ids, blinded", question)
    answer = member.answer(question)
    line("other: both parties' ids, blinded", answer)
    leader.took("b", answer)
    line("leader: the intersection")
    order = leader.order()
    line("leader: the order", order)
    member.took(order)
    line("other: its rows in that order")
    assert sorted(leader.rows.tolist()) == list(range(count // 2, count))
    assert (leader.rows - count // 2 == member.rows).all()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"in all {time.perf_counter() - whole:.1f} s, both parties on this machine; {most:.1f} GB"
    )


if __name__ == "__main__":
    main()
