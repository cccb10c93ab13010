"""fedmin keys: who is who in a federation. Each command prints the next one, to be copied."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmin.cli.errors import plain_errors

group = typer.Typer(
    help="Keys and certificates of a federation: make, sign, renew, revoke, show.",
    no_args_is_help=True,
)

AuthorityFolder = Annotated[Path, typer.Option("--authority", help="The authority's folder.")]
Where = Annotated[
    Path | None, typer.Option("--folder", help="Where they go; a folder of that name if left out.")
]
Days = Annotated[int, typer.Option(help="How long it is good.")]


@group.command()
@plain_errors
def authority(
    folder: Annotated[Path, typer.Argument(help="A folder of its own; best not at the server.")],
    name: Annotated[str, typer.Option(help="What certificates call it.")] = "fedmin authority",
    days: Days = 3650,
) -> None:
    """Make the federation's own certificate authority."""
    from fedmin.privacy.authority import SECRET, make_authority
    from fedmin.privacy.certificates import fingerprint, read_certificate

    made = make_authority(folder, name, days)
    typer.echo(f"{folder / SECRET}: whoever has this key can be anybody; it never leaves here")
    typer.echo(f"{made}: its certificate, which every party gets with its own")
    typer.echo(f"its key is {fingerprint(read_certificate(made))}")
    typer.echo("next, at each site:    fedmin keys site NAME")
    typer.echo("and at the server:     fedmin keys server NAME --host HOST")


@group.command()
@plain_errors
def site(
    name: Annotated[str, typer.Argument(help="The site's name in the federation.")],
    folder: Where = None,
) -> None:
    """At a site: make its key, which never leaves, and a request for a certificate."""
    _request(name, "site", folder, [])
    typer.echo(f"meanwhile, a file for the site:    fedmin site init {name}")


@group.command()
@plain_errors
def server(
    name: Annotated[str, typer.Argument(help="The server's name in the federation.")],
    host: Annotated[list[str], typer.Option(help="A name or an address that sites call it by.")],
    folder: Where = None,
) -> None:
    """At the server: make its key and a request, for the hosts that sites call it by."""
    _request(name, "server", folder, host)


def _request(name: str, role: Any, folder: Path | None, hosts: list[str]) -> None:
    from fedmin.privacy.certificates import KEY
    from fedmin.privacy.identity import make_request

    folder = Path(name) if folder is None else folder
    made = make_request(folder, name, role, hosts)
    typer.echo(f"{folder / KEY}: the key of {role} {name}; it never leaves here")
    _send(made, "")


def _send(request: Path, renew: str) -> None:
    from fedmin.privacy.authority import read_request
    from fedmin.privacy.certificates import fingerprint

    typer.echo(f"{request}: send this to the authority, and tell them by phone that its key is")
    typer.echo(f"    {fingerprint(read_request(request))}")
    typer.echo(f"next, there:    fedmin keys sign {request}{renew} --authority FOLDER")


@group.command()
@plain_errors
def sign(
    requests: Annotated[list[Path], typer.Argument(help="Requests of sites or of the server.")],
    authority: AuthorityFolder = Path("authority"),
    days: Days = 365,
    renew: Annotated[
        bool, typer.Option(help="For a name whose certificate is still good, with the same key.")
    ] = False,
    beside: Annotated[
        bool, typer.Option(help="Write each certificate beside its request: on one machine.")
    ] = False,
) -> None:
    """At the authority: sign requests, once their keys are what their owners say."""
    from fedmin.privacy.authority import read_request
    from fedmin.privacy.authority import sign as sign_one
    from fedmin.privacy.certificates import CERTIFICATE, day, fingerprint, read_certificate, said_by

    for request in requests:
        said = said_by(read_request(request), str(request))
        out = request.parent if beside else None
        sent = sign_one(authority, request, days, renew=renew, out=out)
        made = read_certificate(sent / CERTIFICATE)
        hosts = f" at {', '.join(said.hosts)}" if said.hosts else ""
        typer.echo(f"{said.role} {said.name}{hosts}, good until {day(made.not_valid_after_utc)}")
        typer.echo(f"    its key is {fingerprint(made)}")
        if not beside:
            typer.echo(f"next: send all of {sent} back; it goes into the folder of its key")


@group.command()
@plain_errors
def renew(
    folder: Annotated[Path, typer.Argument(help="Of a party's keys, or of the authority.")],
    days: Annotated[int | None, typer.Option(help="Of an authority, how long it is good.")] = None,
) -> None:
    """A later end: a new request with the same key; or the authority's own certificate."""
    from fedmin.privacy.authority import AUTHORITY_DAYS, SECRET, renew_authority
    from fedmin.privacy.certificates import day, read_certificate
    from fedmin.privacy.identity import renew_request

    if (folder / SECRET).exists():
        made = renew_authority(folder, AUTHORITY_DAYS if days is None else days)
        ends = read_certificate(made).not_valid_after_utc
        typer.echo(f"{made}: the same key, good until {day(ends)}; what it has signed stays good")
        typer.echo(f"next: every party copies {made} into the folder of its key")
    elif days is not None:
        raise ValueError("a party does not say how long: the authority does, with sign --days")
    else:
        _send(renew_request(folder), " --renew")


@group.command()
@plain_errors
def revoke(
    name: Annotated[str, typer.Argument(help="Whose certificates are not to be believed.")],
    authority: AuthorityFolder = Path("authority"),
) -> None:
    """At the authority: whatever was signed for a name is not believed any more."""
    from fedmin.privacy.authority import revoke as revoke_name

    listed = revoke_name(authority, name)
    typer.echo(f"{listed}: {name} is in it, and counts wherever this list is")
    typer.echo(f"next: copy {listed} into the folder of keys of the server, and of every site")


@group.command()
@plain_errors
def show(
    folder: Annotated[Path, typer.Argument(help="A folder of keys, an authority, or a request.")],
) -> None:
    """Who a folder is, until when; of an authority whom it has signed for."""
    from fedmin.privacy.authority import SECRET, read_request
    from fedmin.privacy.certificates import REQUEST, fingerprint, said_by
    from fedmin.privacy.identity import Identity

    if (folder / SECRET).exists():
        _show_authority(folder)
    elif folder.is_file() or (
        (folder / REQUEST).exists() and not (folder / "certificate.pem").exists()
    ):
        asked = read_request(folder if folder.is_file() else folder / REQUEST)
        said = said_by(asked, str(folder))
        typer.echo(f"a request for {said.role} {said.name}, not yet signed")
        typer.echo(f"key      {fingerprint(asked)}")
    else:
        _show_party(Identity.load(folder))


def _show_party(me: Any) -> None:
    from fedmin.privacy.certificates import day, fingerprint, name_in, read_certificate, said_by

    mine, authority = read_certificate(me.certificate), read_certificate(me.authority)
    typer.echo(f"{me.role} {me.name}, good until {day(mine.not_valid_after_utc)}")
    if said_by(mine).hosts:
        typer.echo(f"hosts        {', '.join(said_by(mine).hosts)}")
    typer.echo(f"key          {fingerprint(mine)}")
    ends = day(authority.not_valid_after_utc)
    typer.echo(f"authority    {name_in(authority)}, good until {ends}")
    typer.echo(f"its key      {fingerprint(authority)}")


def _show_authority(folder: Path) -> None:
    from datetime import UTC, datetime

    from fedmin.cli.catalog import print_table
    from fedmin.privacy.authority import issued
    from fedmin.privacy.certificates import AUTHORITY, day, fingerprint, name_in, read_certificate

    mine, now = read_certificate(folder / AUTHORITY), datetime.now(UTC)
    typer.echo(f"{name_in(mine)}, good until {day(mine.not_valid_after_utc)}")
    typer.echo(f"its key is {fingerprint(mine)}")
    lines = []
    for each in issued(folder):
        state = "revoked" if each.revoked else "good" if each.good(now) else "ended"
        key = fingerprint(each.certificate).split()[0]
        lines.append([each.name, each.role, key, day(each.begins), day(each.ends), state])
    if lines:
        print_table(["name", "role", "key", "from", "until", ""], lines)
