"""The report of runs that are still going: the same page, served on localhost, which reloads."""

from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedmin.runs.reading import report_of

SECONDS = 3  # between reloads
WAITING = """<!doctype html><meta charset="utf-8"><title>fedmin</title>
<p style="font-family: sans-serif">Nothing to show yet: {words}</p>"""


def current_page(folders: Sequence[Path]) -> str:
    """The page as it is now; it asks for itself again after a few seconds."""
    again = f'<meta http-equiv="refresh" content="{SECONDS}">'
    try:
        page = report_of(folders)
    except (ValueError, OSError) as error:
        page = WAITING.format(words=error)
    return page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{again}', 1)


def server(folders: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """A server of this one page, on localhost only."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = current_page(folders).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
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
        say(f"at port {running.server_address[1]} of this machine; Ctrl-C ends it")
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            say("ended")
