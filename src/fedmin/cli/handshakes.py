"""Who failed to come in, and why, where TLS refuses them: before any code of ours hears of them.

gRPC tells that only to standard error of the process, if it is asked to trace its handshakes. So
`fedmin serve`, whose process is its own, has what the libraries say there go through a pipe:
handshakes that failed become one sentence each in the server's log, those that went well nothing,
and everything else goes where it would have gone. What Python itself says does not take that way.
"""

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("fedmin.serve")
OURS = re.compile(
    r"[IWEF]\d{4} [\d:.]+ +\d+ (handshaker\.cc|channel_trace\.h|ssl_transport_security\.cc|"
    r"trace\.cc|log\.cc):\d+\] "
)
FAILED = re.compile(r"CallNextHandshakerLocked: error=(?!OK)(.*)")
PEER = re.compile(r"endpoint_peer_address=([^,}\s]+)")
MORE = re.compile(r"=== Source Location Trace|src/core/| shutdown=|\s*$")
SENTENCES = (
    ("HTTP_REQUEST", "it speaks plain HTTP, and no TLS"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("UNSUPPORTED_PROTOCOL", "it speaks a TLS that is older than 1.2"),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it showed no certificate"),
    ("certificate has expired", "its certificate has expired: fedmin keys renew at the site"),
    ("certificate is not yet valid", "its certificate is not valid yet: look at both clocks"),
    ("issuer certificate", "its certificate is of another authority"),
    ("self-signed certificate", "its certificate is of another authority"),
    ("self signed certificate", "its certificate is of another authority"),
)


class Handshakes:
    """From lines of gRPC's trace to sentences: `said` is given who it was, and why.

    >>> from fedmin.cli.handshakes import Handshakes
    >>> heard = Handshakes(print)
    >>> front = "I1118 11:33:52.368155   19723 handshaker.cc:155] CallNextHandshakerLocked: "
    >>> heard.take(front + "error=UNKNOWN: Ssl handshake failed: ...: certificate has expired: OK")
    True
    >>> heard.take(" shutdown=false, args={grpc.internal.endpoint_peer_address=ipv4:10.0.0.7:5012}")
    ipv4:10.0.0.7:5012 its certificate has expired: fedmin keys renew at the site
    True
    >>> heard.take("what another library says")
    False
    """

    def __init__(self, said: Callable[[str, str], None]):
        self.said, self.why, self.inside = said, "", False

    def take(self, line: str) -> bool:
        """Hear a line; whether it was of the trace."""
        ours = bool(OURS.match(line))
        if not ours and not (self.inside and MORE.match(line)):
            self.inside = False
            return False
        if ours:
            self.inside, found = True, FAILED.search(line)
            self.why = found[1] if found else ""
        peer = PEER.search(line)
        if self.why and peer:
            self.said(peer[1], in_words(self.why))
            self.why = ""
        return True


def in_words(why: str) -> str:
    """A reason of TLS in words, or as it is."""
    for letters, sentence in SENTENCES:
        if letters in why:
            return sentence
    if "OPENSSL_internal:" in why:
        return f"TLS says {why.rpartition('OPENSSL_internal:')[2].removesuffix(': OK').strip()}"
    return f"the handshake was broken off ({why.partition('Source Location')[0].strip()})"


def _say(peer: str, why: str) -> None:
    # a probe that a load balancer sends every few seconds is no warning
    level = logging.INFO if "broken off" in why else logging.WARNING
    log.log(level, "refused %s: %s", peer, why)


@contextmanager
def logged() -> Iterator[None]:
    """Failed handshakes are in the server's log from here on; gRPC must not have started yet."""
    if "grpc" in sys.modules:  # it has read its settings already: of a program that is not ours
        yield
        return
    before = os.environ.get("GRPC_TRACE")
    os.environ["GRPC_TRACE"] = f"{before},handshaker" if before else "handshaker"
    os.environ["GRPC_VERBOSITY"] = "info"
    kept, stream = os.dup(2), sys.stderr
    reading, writing = os.pipe()
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    sys.stderr = os.fdopen(os.dup(kept), "w", buffering=1, errors="backslashreplace")
    reader = threading.Thread(target=_read, args=(reading, kept), daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = stream
        os.dup2(kept, 2)  # the last end of the pipe that is written to: its reader comes to an end
        reader.join(5)


def _read(reading: int, kept: int) -> None:
    heard = Handshakes(_say)
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not heard.take(line.decode(errors="replace").rstrip("\n")):
                os.write(kept, line)
