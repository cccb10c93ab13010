"""A site half under its own guard: its policy is asked of every run and every round, and whatever
leaves is written down before it does.

A transport answers through `GuardedSite.answer` in place of `SiteSession.answer`; nothing else of
the site goes out.
"""

from collections.abc import Iterable
from typing import Any

from fedmin.core.method import Relay
from fedmin.core.metrics_by import lined
from fedmin.engines.messages import of_session
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.places import Place
from fedmin.engines.sessions.seal import key_like
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.sessions.wire import MessageError
from fedmin.engines.weighing import reply_sizes
from fedmin.privacy.departures import SETUP, TRAINING, Departures
from fedmin.privacy.observers import SERVER, shapes
from fedmin.privacy.policy import Policy


class PolicyError(MessageError):
    """The site's own policy forbids it; the sentence says what would be allowed."""


class GuardedSite:
    """A site session that answers what its policy allows, and writes down every answer.

    `rounds`, `quorum`, `epsilon`, `columns` and `seeded` are what the run says of itself, as the
    site read it (see `Policy.refuses`). A run that the policy does not allow is refused here,
    before its first question.
    """

    def __init__(
        self,
        site: SiteSession,
        policy: Policy,
        log: Departures,
        *,
        rounds: int,
        quorum: float = 1.0,
        epsilon: float | None = None,
        columns: Iterable[str] = (),
        seeded: bool = False,
    ):
        self.site, self.policy, self.log = site, policy, log
        self.name = site.run_name.hex()
        why = policy.refuses(
            site.run, site.roster, rounds,
            quorum=quorum, epsilon=epsilon, columns=columns, name=self.name, seeded=seeded,
        )  # fmt: skip
        if why:
            raise PolicyError(why)
        if not policy.own_line:
            site.rows = site.roster.view(site.me, lined(site.run.record, site.own_rows, -1))

    def answer(self, data: bytes) -> bytes:
        """The reply to a message; `MessageError` if it must not be answered."""
        envelope = wire.envelope_of(data)
        place = Place.of(envelope)
        asked: dict[str, Any] = {"run": self.name, "round": place.round, **self._when(place)}
        if envelope.kind == "ask":
            self._check_question(data, asked)
        reply = self.site.answer(data)
        sent = wire.envelope_of(reply)
        self.log.add(reply, kind=sent.kind, asked=data, **self._described(sent, place), **asked)
        return reply

    def _when(self, place: Place) -> dict[str, Any]:
        if place.phase == -1:
            return {"when": SETUP, "trip": place.trip}
        purpose, step = place.within(self.site.messages)
        return {"when": purpose.name, "trip": step}

    def _check_question(self, data: bytes, asked: dict[str, Any]) -> None:
        """A new question is one more round, also where a round is asked anew in other words."""
        if asked["when"] == SETUP or self.log.answered(asked=data, **asked):
            return
        count = self.log.rounds(self.name, asked["trip"], asked["when"])
        why = self.policy.refuses_round(count, look=asked["when"] != TRAINING)
        if why:
            raise PolicyError(why)

    def _described(self, sent: wire.Envelope, place: Place) -> dict[str, Any]:
        """The parts of a reply, their bytes and shapes, and who can read them."""
        site = self.site
        if sent.kind != "reply":
            return {}
        if place.phase == -1:
            like = key_like(site.messages.signed) if place.trip == 0 else {}
            return {"parts": wire.sizes(like), "shapes": shapes(like)}
        purpose, step = place.within(site.messages)
        e, leg = purpose.steps[step]
        form, population = purpose.forms[e], site.roster.clients
        if leg is not None:
            peers = 0 if form.protocol is None else form.protocol.peers(len(site.drawn(place)))
            like, name = leg.form("up", peers), "" if of_session(leg) else leg.name
            return {"parts": wire.sizes(like), "shapes": shapes(like), "leg": name}
        to = SERVER
        if isinstance(form.trip, Relay):
            receivers = [i for i in form.trip.receivers(population) if i != site.me]
            to = ", ".join(site.roster.names[i] for i in receivers) or "nobody"
        parts = reply_sizes(purpose, e, site.me, population)
        return {"parts": parts, "shapes": shapes(form.hidden), "to": to}
