"""fedmin as a Flower app: `flwr run` with a stock SuperLink and SuperNodes.

A Flower app needs two lines of Python (examples/flower):

    app = server_app()        in its server file
    app = client_app()        in its client file

The server's run configuration says `run` (the file of `fedmin run`, with a [federation] that names
the sites), `out`, `mode` and, for a stream, `listen` and `host`. Every SuperNode's configuration
says `site`, the path of the site's own site.toml, whose `server` and `keys` are not used.

    mode = "messages"    every question is a Flower message: through the SuperLink alone, a few
                         seconds a trip
    mode = "stream"      one Flower message has the site open a gRPC stream to the server: its key
                         is made at the site and never leaves it, the server signs it for this run
"""

import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedmin.core import checks
from fedmin.core.files import write_whole
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.wire import MessageError
from fedmin.engines.transports.flower.grid import GridDoor, Nodes, Opening, heard, said
from fedmin.engines.transports.grpc.streams import StreamDoor
from fedmin.privacy.authority import make_authority, read_request, sign
from fedmin.privacy.certificates import AUTHORITY, CERTIFICATE, REVOKED, said_by
from fedmin.privacy.departures import Departures
from fedmin.privacy.identity import Identity, make_request
from fedmin.runs.agreement import hello_of, misfit, only_job
from fedmin.runs.config import Config
from fedmin.runs.counting import told
from fedmin.runs.document import ConfigError
from fedmin.runs.folder import Outcome
from fedmin.runs.joining import SiteHalf, join_run, note_in
from fedmin.runs.own_rows import read_own
from fedmin.runs.preparing import prepares
from fedmin.runs.serving import OwnFiles, serve_at
from fedmin.runs.site_file import SiteFile

log = logging.getLogger("fedmin.flower")
MODES = ("messages", "stream")
DAYS = 90  # for which the certificates of one run are good

# ---------------------------------------------------------------- the server


def server_app() -> ServerApp:
    """The server half as a Flower ServerApp."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        outcome = serve_grid(grid, context.run_config)
        print(outcome.result)
        print(f"folder:  {outcome.folder}")

    return app


def serve_grid(grid: Grid, settings: Mapping[str, Any]) -> Outcome:
    """Do the run that a Flower run's configuration names."""
    mode = settings.get("mode", "messages")
    checks.known("mode", mode, MODES)
    if "run" not in settings:
        raise ValueError("the run configuration needs run, the path of a run.toml")
    config = Config.read(Path(str(settings["run"])))
    if prepares(only_job(config)):
        raise ConfigError(
            f"{config.source}: columns are prepared by streams, not through Flower; take `fedmin "
            f"serve` and `fedmin join`"
        )
    assert config.terms is not None
    out, nodes = str(settings.get("out", "runs")), Nodes(grid)
    path = lambda key: Path(str(settings[key])) if settings.get(key) else None
    own = OwnFiles(path("test"), path("server-rows"))
    door = GridDoor(nodes, config.terms.sites, misfit)
    if mode == "messages":
        return serve_at(config, out, door, own)
    with tempfile.TemporaryDirectory() as home:
        return _Opened(door, nodes, Path(home), settings).serve(config, out, own)


class _Opened:
    """A run over streams that were opened by Flower messages."""

    def __init__(self, door: GridDoor, nodes: Nodes, home: Path, settings: Mapping[str, Any]):
        self.door, self.nodes, self.home = door, nodes, home
        self.listen = str(settings.get("listen", "0.0.0.0:0"))
        self.host = str(settings.get("host", ""))
        if not self.host:
            raise ValueError('a stream needs host, the name or address that sites call: host = "…"')

    def serve(self, config: Config, out: str, own: OwnFiles) -> Outcome:
        authority, keys = self.home / "authority", self.home / "server"
        make_authority(authority, days=DAYS + 1)
        sign(authority, make_request(keys, "server", "server", [self.host]), DAYS, out=keys)
        assert config.terms is not None
        said_by_sites = self.door.wait_for_hellos(config.terms.wait, self.nodes.interrupt)
        openings = {
            self.door.sites[name]: self._signed(name, words, authority)
            for name, words in said_by_sites.items()
        }
        streams = StreamDoor(Identity.load(keys), config.terms.sites, self.listen, misfit)
        address = f"{self.host}:{streams.port}"
        log.info("listening at %s", address)
        records = {node: one._replace(address=address).record() for node, one in openings.items()}
        open_ = self.nodes.push(records)
        outcome = serve_at(config, out, streams, own)
        for reply in self.nodes.grid.pull_messages(list(open_)):
            answer = heard(reply)
            if answer["kind"] != "ended":
                log.warning("a site says: %s", answer.get("why", ""))
        return outcome

    def _signed(self, name: str, words: Mapping[str, Any], authority: Path) -> Opening:
        """The certificate that a site asked for, if it is for its own name."""
        request = self.home / f"{name}.pem"
        request.write_text(str(words.get("request", "")))
        asked = said_by(read_request(request), f"the request of {name}")
        if (asked.name, asked.role) != (name, "site"):
            raise ValueError(f"{name} asks for a certificate of {asked.role} {asked.name}")
        sent = sign(authority, request, DAYS)
        files = (CERTIFICATE, AUTHORITY, REVOKED)
        return Opening("", *((sent / file).read_bytes() for file in files))


# ---------------------------------------------------------------- a site


def client_app() -> ClientApp:
    """The site half as a Flower ClientApp."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(_answer(heard(message), context), reply_to=message)

    return app


def _answer(ask: Mapping[str, Any], context: Context) -> Any:
    try:
        if "site" not in context.node_config:
            raise ValueError("the node's configuration needs site, the path of its site.toml")
        file = SiteFile.read(Path(str(context.node_config["site"])))
        return ANSWERS[ask["kind"]](file, ask, context)
    except MessageError as error:
        log.warning("%s", error)
        return said("no", why=str(error))
    except (ClientError, ValueError, TypeError, OSError, KeyError) as error:
        log.warning("%s", error)
        return said("failed", why=str(error))


def _home(file: SiteFile, context: Context) -> Path:
    """Where a site keeps its key of one Flower run, and what it was told of it."""
    return Path(file.state) / f"flower-{context.run_id}"


def _hello(file: SiteFile, ask: Any, context: Context) -> Any:
    """Who this is, the form of its rows, and a request for a certificate of this run."""
    home = _home(file, context)
    request = home / "request.pem"
    if not request.exists():
        request = make_request(home, file.name)
    words = {**hello_of(read_own(file).shapes(file.data.rows_told)), "request": request.read_text()}
    with Departures(file.log, file.name) as log_of_site:
        return said("hello", note_in(log_of_site)("hello", words), name=file.name)


def _query(file: SiteFile, ask: Any, context: Context) -> Any:
    """What is counted before the run."""
    with Departures(file.log, file.name) as log_of_site:
        return said("told", told(file, read_own(file), log_of_site, ask["data"]))


def _welcome(file: SiteFile, ask: Any, context: Context) -> Any:
    words = json.loads(ask["data"])
    with Departures(file.log, file.name) as log_of_site:
        half = SiteHalf(file, read_own(file), log_of_site, words)
        write_whole(_home(file, context) / "welcome.json", ask["data"])
        return said("ready", note_in(log_of_site)("ready", half.ready()))


def _ask(file: SiteFile, ask: Any, context: Context) -> Any:
    told = _home(file, context) / "welcome.json"
    if not told.exists():
        raise ClientError("it was asked before it was told what is run")
    with Departures(file.log, file.name) as log_of_site:
        half = SiteHalf(file, read_own(file), log_of_site, json.loads(told.read_bytes()))
        return said("reply", half.answer(ask["data"]))


def _join(file: SiteFile, ask: Any, context: Context) -> Any:
    """Open a stream with the certificate that was sent, and stay until the run has ended."""
    opening, home = Opening.of(dict(ask)), _home(file, context)
    for name, data in zip((CERTIFICATE, AUTHORITY, REVOKED), opening[1:], strict=True):
        write_whole(home / name, data)
    words = join_run(
        file, identity=Identity.load(home), address=opening.address, patience=600.0, trusted=False
    )
    return said("ended", json.dumps(words).encode())


ANSWERS = {"hello": _hello, "query": _query, "welcome": _welcome, "ask": _ask, "join": _join}
