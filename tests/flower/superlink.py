"""A stock SuperLink and SuperNodes on loopback, with TLS and node keys; ends what it started."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from fedmin.privacy.authority import make_authority, sign
from fedmin.privacy.identity import make_request

BIN = Path(sys.executable).parent
SECONDS = 240.0  # for anything that is waited for


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as some:
        return some.connect_ex(("127.0.0.1", port)) == 0


class SuperLink:
    """A link, its nodes, and the commands of a person who uses them."""

    def __init__(self, home: Path):
        self.home, self.port = home, free_port()
        self.keys = home / "keys"
        self.processes: list[subprocess.Popen] = []
        self.environment = {
            **os.environ, "FLWR_HOME": str(home / "flwr"), "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FEDMIN_DEVICES": "1", "NO_COLOR": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip

    def start(self) -> None:
        make_authority(self.home / "authority")
        request = make_request(self.keys, "link", "server", ["localhost", "127.0.0.1"])
        sign(self.home / "authority", request, out=self.keys)
        (self.home / "flwr").mkdir()
        (self.home / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "local"\n[superlink.local]\n'
            f'address = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.keys / "authority.pem"}"\n'
        )
        self._start(
            "flower-superlink", "--ssl-ca-certfile", "authority.pem", "--ssl-certfile",
            "certificate.pem", "--ssl-keyfile", "key.pem", "--enable-supernode-auth",
            "--host", "127.0.0.1", "--port", str(self.port), log="superlink.log",
        )  # fmt: skip
        until = time.monotonic() + SECONDS
        while not listens(self.port):
            if time.monotonic() > until or self.processes[0].poll() is not None:
                raise AssertionError((self.home / "superlink.log").read_text()[-2000:])
            time.sleep(0.2)

    def node(self, name: str, site_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP384R1())
        secret, public = self.keys / name, self.keys / f"{name}.pub"
        secret.write_bytes(
            key.private_bytes(
                form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()
            )
        )  # fmt: skip
        secret.chmod(0o600)
        public.write_bytes(
            key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        )
        self.command("supernode", "register", str(public), "local")
        self._start(
            "flower-supernode", "--root-certificates", "authority.pem",
            "--auth-supernode-private-key", str(secret), "--superlink", f"127.0.0.1:{self.port}",
            "--port", str(free_port()), "--node-config", f'site="{site_file}"',
            log=f"node-{name}.log",
        )  # fmt: skip

    def _start(self, *command: str, log: str) -> None:
        with (self.home / log).open("wb") as file:
            self.processes.append(
                subprocess.Popen(
                    [str(BIN / command[0]), *command[1:]], cwd=self.keys, env=self.environment,
                    stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True,
                )
            )  # fmt: skip

    def command(self, *words: str) -> str:
        """`flwr WORDS`, to its end."""
        done = subprocess.run(
            [str(BIN / "flwr"), *words], env=self.environment, cwd=self.home, timeout=SECONDS,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, app: Path, **settings: str) -> str:
        """`flwr run APP --stream`: what the server says."""
        config = " ".join(f'{key}="{value}"' for key, value in settings.items())
        return self.command("run", str(app), "local", "--stream", "--run-config", config)

    def log(self, name: str) -> str:
        return re.sub(r"\x1b\[\d+m", "", (self.home / name).read_text())

    def stop(self) -> None:
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 15)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


@contextlib.contextmanager
def superlink(home: Path) -> Iterator[SuperLink]:
    home.mkdir(parents=True)
    found = SuperLink(home)
    try:
        found.start()
        yield found
    finally:
        found.stop()
