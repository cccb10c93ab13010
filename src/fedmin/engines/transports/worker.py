"""One site in a process of its own: `python -m fedmin.engines.transports.worker`.

It is told the run and the roster and given its own rows over its standard input, and then answers
messages until the pipe ends. Its standard output carries replies only.
"""

import io
import json
import os
import sys
from typing import Any, BinaryIO

from fedmin.engines.transports import pipes
from fedmin.engines.transports.words import from_words


def opened(words: dict[str, Any], rows: bytes) -> Any:
    """The site session that these words and rows make."""
    import jax

    for name, value in words["settings"].items():
        jax.config.update(name, value)
    sys.path[:0] = [path for path in words["path"] if path not in sys.path]
    from fedmin.core.rows import Rows
    from fedmin.engines.sessions.site import SiteSession

    run, roster, x = (from_words(words[key]) for key in ("run", "roster", "x"))
    with np_load(rows) as arrays:
        leaves = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
    own: Rows = jax.tree.unflatten(jax.tree.structure(x), leaves)
    return SiteSession(run, roster, words["me"], own, seed=words["seed"], folder=words["folder"])


def np_load(data: bytes) -> Any:
    """Arrays from a file in memory; no pickles."""
    import numpy as np

    return np.load(io.BytesIO(data), allow_pickle=False)


def serve(inward: BinaryIO, outward: BinaryIO) -> None:
    """Answer until there is no more to answer."""
    from fedmin.engines.sessions.wire import MessageError

    first, second = pipes.receive(inward), pipes.receive(inward)
    if first is None or second is None:
        return
    try:
        site = opened(json.loads(first[1]), second[1])
    except Exception as error:
        pipes.send(outward, pipes.FAILED, f"{error}".encode())
        return
    pipes.send(outward, pipes.OPEN, site.run_name)
    while (frame := pipes.receive(inward)) is not None:
        try:
            pipes.send(outward, pipes.REPLY, site.answer(frame[1]))
        except MessageError as error:
            pipes.send(outward, pipes.REFUSED, f"{error}".encode())
        except Exception as error:
            pipes.send(outward, pipes.FAILED, f"{error}".encode())


def main() -> None:
    """Whatever else is printed goes to standard error."""
    outward = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, outward)


if __name__ == "__main__":
    main()
