"""The report of runs that are still going: the same page, served on localhost, which reloads.

Only this machine can reach it, and only under its own names: a page of a stranger's whose name has
been pointed at 127.0.0.1 (DNS rebinding) is refused by the Host that its browser sends.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedmin.reports.page import frame, policy
from fedmin.runs.reading import report_of

SECONDS = 3  # between reloads
PAUSES = (0.1, 0.3, 0.0)  # seconds after an attempt to read folders that are being written
OWN_NAMES = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE | re.ASCII)


def current_page(folders: Sequence[Path]) -> str:
    """The page as it is now; it asks for itself again after a few seconds."""
    again = f'<meta http-equiv="refresh" content="{SECONDS}">'
    for pause in PAUSES:
        try:
            page = report_of(folders)
            break
        except (ValueError, OSError) as error:  # nothing there, or half written
            page = frame("fedmin", "", f"<p>Nothing to show yet: {escape(str(error))}</p>", None)
            time.sleep(pause)
    return page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{again}', 1)


def server(folders: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """A server of this one page, on localhost only."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not OWN_NAMES.fullmatch(self.headers.get("Host", "")):
                words = "This page is for this machine only: open it at localhost."
                self.answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", words)
            else:
                self.answer(HTTPStatus.OK, "text/html", current_page(folders))

        def answer(self, status: HTTPStatus, kind: str, words: str) -> None:
            body = words.encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", f"{policy()}; frame-ancestors 'none'")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            with suppress(ConnectionError):  # a browser that has gone does not matter
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Page)


def serve(folders: Sequence[Path], port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C."""
    for folder in folders:
        if not folder.exists():
            raise ValueError(f"there is no {folder}")
    with server(folders, port) as running:
        say(f"http://localhost:{running.server_address[1]}/ on this machine; Ctrl-C ends it")
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            say("ended")
