"""How a site keeps a round for the server, and how it goes back to where the server is."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.engines.round import SERVER, SiteState
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.files import DamagedCheckpointError
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.places import BEGINNING, Place
from fedmin.engines.sessions.wire import Envelope, MessageError


def used_like() -> dict[str, np.ndarray]:
    """What a site is told when it is to keep a round or go back: how many replies were used."""
    return {"used": np.zeros((), np.uint32)}


def keep_or_go_back(site: Any, envelope: Envelope, data: bytes) -> bytes:
    """Be where the site was after as many of its replies as the server has used; and keep the state
    after so many rounds, before the server does."""
    used = int(wire.decode(data, used_like())[1]["used"])
    done = envelope.round
    if envelope.kind == "keep" and done < site.place.round:
        raise MessageError(f"{envelope}: the site is in round {site.place.round} already")
    said = _go_back(site, done, used)
    if envelope.kind == "keep" and said == "kept" and site.files is not None:
        site.files.write(done, {"told": used}, {"state": site.state})
    return wire.encode(envelope._replace(kind=said, sender=site.me, receiver=SERVER), {})


def hear_again(site: Any) -> None:
    """Know what the site was told in this round, from the questions that it has answered."""
    site.notices, site.own = [], {}
    for place, _, ask, *_ in site.diary.answers:
        purpose, step = place.within(site.messages)
        if purpose.name != site.purpose(site.place):
            continue
        # what was sealed with keys that are gone is told again; a leg tells the method nothing
        if not site.sealed and purpose.steps[step].leg is None:
            site.hear(place, wire.envelope_of(ask), ask)


def _go_back(site: Any, done: int, used: int) -> str:
    """Be where it was after so many replies: "kept", or "lost" if nothing whole is there."""
    diary = site.diary
    if used == diary.told:
        return "kept"
    if diary.back(used):
        site.role = None
        hear_again(site)
        site.due = min(site.due, site.next_round(site.round_after(site.place)))
        return "kept"
    if used == 0:
        diary.restart(BEGINNING, 0, site.first_state())
    elif site.files is None:
        raise ClientError(
            f"client {site.name}: the server has used {used} of its replies; it has given "
            f"{diary.told} and keeps nothing to go back to"
        )
    else:
        try:
            diary.restart(Place(done - 1, 1, 0), used, _kept_state(site, done, used))
        except DamagedCheckpointError as error:
            warnings.warn(f"client {site.name}: {error}", RuntimeWarning, stacklevel=6)
            return "lost"
    hear_again(site)
    site.due = site.next_round(done)
    return "kept"


def _kept_state(site: Any, done: int, used: int) -> SiteState:
    words, arrays = site.files.at(done, lambda words: {"state": site.state})
    if words["told"] != used:
        raise DamagedCheckpointError(
            f"what is kept of round {done} is after {words['told']} replies of the site, the "
            f"server has used {used}"
        )
    return jax.tree.map(jnp.asarray, arrays["state"])
