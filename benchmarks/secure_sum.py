"""What a secure sum costs: python -m benchmarks.secure_sum [--clients 10] [--entries 1000000]

The two roles without sessions, in one thread: keys and shares, masks and unmasking of one client,
the server's whole part, in CPU time; and the bytes that one client sends beside its numbers.
Medians over rounds; beside them a bare ChaCha20 stream over as many bytes as a client's masks have,
in the same run.
"""

import argparse
import statistics
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fedmin.channels.fixed_point import weight_words
from fedmin.channels.secure.legs import WEIGHT, SumProtocol, Terms
from fedmin.core.protocol import EXCHANGE, Occasion

LEGS = ("keys", "shares", EXCHANGE, "agree", "unmask")


def one_round(clients: int, entries: int, limbs: int, lost: int, t: int) -> tuple[Any, int]:
    """Seconds by leg and party of one exchange, and the bytes a client sends but its numbers."""
    ids = tuple(range(clients))
    share = np.float32(1 / clients)
    roster: Any = SimpleNamespace(
        names=tuple(map(str, ids)), identities=(), sizes_told=True, share=lambda i: share
    )
    occasion = Occasion(b"benchmark"[:8], t, 0, ids, roster)
    numbers = np.ones((entries, limbs), np.uint32)
    wire = {"update": numbers, WEIGHT: weight_words(share, limbs)}
    protocol = SumProtocol(wire, Terms(limbs, "lying", 3))
    took: dict[str, float] = dict.fromkeys(("server", *LEGS), 0.0)
    clock = time.thread_time  # of this thread: what others do on the machine is not in it
    server = protocol.server(occasion)
    sites: dict[int, Any] = {}
    sent, there = 0, ids
    for leg in LEGS:
        start = clock()
        said = server.say(leg, there)
        took["server"] += clock() - start
        there = ids[: clients - lost] if leg == EXCHANGE else there
        replies = {}
        start = clock()
        for i in there:
            if leg == "keys":
                sites[i] = protocol.site(occasion, i)
            site = sites[i]
            replies[i] = site.hide(wire, said[i]) if leg == EXCHANGE else site.answer(leg, said[i])
        took[leg] += (clock() - start) / len(there)
        if leg != EXCHANGE:
            sent += sum(a.nbytes for a in replies[0].values())
        start = clock()
        if leg == EXCHANGE:
            server.took_wires(replies)
        else:
            for i, reply in replies.items():
                server.check(leg, i, reply)
            server.took(leg, replies)
        took["server"] += clock() - start
    start = clock()
    total = server.reveal()
    took["server"] += clock() - start
    assert (total["update"][:, 0] == len(there)).all()
    return took, sent


def bare(words: int) -> float:
    """Seconds of a stream of so many words."""
    stream = Cipher(algorithms.ChaCha20(bytes(32), bytes(16)), None).encryptor()
    piece, room = bytes(1 << 20), bytearray(1 << 20)
    start = time.thread_time()
    for _ in range(-(-4 * words // len(piece))):
        stream.update_into(piece, room)
    return time.thread_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=32, choices=(32, 64))
    parser.add_argument("--lost", type=int, default=0, help="clients that drop out in the exchange")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    limbs = given.bits // 32
    shape = given.clients, given.entries, limbs, given.lost
    one_round(*shape, 0)  # caches of identities, pages of memory
    found = [one_round(*shape, 1 + t) for t in range(given.rounds)]
    streams = [bare(given.clients * given.entries * limbs) for _ in range(given.rounds)]

    def middle(*legs: str) -> float:
        return 1e3 * statistics.median(sum(took[leg] for leg in legs) for took, _ in found)

    print(
        f"n = {given.clients}, d = {given.entries:,}, {given.bits} bits, {given.lost} lost, median"
    )
    print(f"keys and shares  {middle('keys', 'shares'):8.2f} ms a client")
    print(f"mask             {middle(EXCHANGE):8.2f} ms a client")
    print(f"agree and unmask {middle('agree', 'unmask'):8.2f} ms a client")
    print(f"server           {middle('server'):8.2f} ms")
    print(f"bare ChaCha20    {1e3 * statistics.median(streams):8.2f} ms for a client's masks")
    print(f"up               {4 * limbs * given.entries:,} bytes and {found[0][1]:,} beside them")


if __name__ == "__main__":
    main()
