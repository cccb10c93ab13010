"""The server's half of a method at a site, where the server itself has no model.

Behind a channel that is `blind` every site opens the sum, and does with it what the server would
do: the step of a method is a function of its state and of the sum, so all sites have the same
model, and nobody has to send it. A look at the model begins and ends at the sites too: one of them
tells the server what is recorded.
"""

import io
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.channel import Cohort
from fedmin.core.files import write_whole
from fedmin.core.protocol import Opened
from fedmin.core.roster import Roster
from fedmin.engines.forms import Purpose
from fedmin.engines.messages import Messages, reports_of
from fedmin.engines.round import SERVER, Run, ServerState, SiteState, now_at, start_key
from fedmin.engines.sessions.looks import Looks
from fedmin.engines.sessions.programs import Programs, server_programs, values_program


class Replica:
    """What a site computes in the server's place; its state is a part of the site's."""

    def __init__(self, run: Run, roster: Roster, messages: Messages, key: Any, folder: Path | None):
        self.file = None if folder is None else folder / "model.npy"
        self.run, self.roster, self.key = run, roster, key
        self.messages, self.unnamed = messages, roster.unnamed()
        self.info, self.names, _ = reports_of(run, roster, None)
        self.programs = Programs(run, self.unnamed, server_programs)
        self.finish = values_program(run)
        self.looks = Looks(run, roster, messages)

    def first(self) -> ServerState:
        """The state before round 0: all begin alike, from the run's seed."""
        forms = self.messages.training.forms
        kept = tuple(
            jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), form.server_memory)
            for form in forms
        )
        start = start_key(self.key, SERVER)
        method = self.run.method.init_server(self.run.origin, self.roster, start)
        return ServerState(method, kept, self.info)

    def model(self, state: ServerState) -> np.ndarray:
        """The model, f[d]."""
        return np.asarray(self.run.method.solution(state.method))

    def say(self, purpose: Purpose, round: int, e: int, state: ServerState) -> dict[str, Any]:
        """What the server would tell all clients on a trip."""
        own: Any = state.method
        if purpose.name != "training":
            if e == 0:
                self.looks.begin(purpose.name, self.run.method.solution(own))
            own = self.looks.state
        if purpose.forms[e].trip.broadcast is None:
            return {}
        run, (say, _) = self.programs.of(purpose.name)
        return say(run, self.unnamed, e, own, self._now(purpose, round, e))

    def taken(
        self, purpose: Purpose, round: int, e: int, opened: Opened, state: ServerState
    ) -> tuple[ServerState, bool]:
        """The state after a sum, and whether it was finite; of a look, which changes none, too."""
        training, form = purpose.name == "training", purpose.forms[e]
        ids = np.arange(self.roster.clients, dtype=np.int32)
        present = np.isin(ids, opened.clients)
        shares = np.where(present, np.asarray(self.roster.shares), 0).astype(self.roster.dtype)
        cohort = Cohort(*map(jnp.asarray, (ids, present, shares)))
        method, memory, info = self.looks.state, form.server_memory, {}
        if training:
            method, memory, info = state.method, state.channel[e], state.info
        run, (_, take_in) = self.programs.of(purpose.name)
        sent = jax.tree.map(lambda a: jnp.asarray(a)[None], opened.wire)
        method, memory, info, fine = take_in(
            run, self.unnamed, e, None, method, memory, info, sent, cohort,
            self._now(purpose, round, e), jnp.asarray(False),
        )  # fmt: skip
        if not training:
            self.looks.state = method
            return state, True  # what is recorded says it where the objective is not finite
        channel = (*state.channel[:e], memory, *state.channel[e + 1 :])
        return (ServerState(method, channel, info) if fine else state), bool(fine)

    def stepped(
        self, purpose: Purpose, round: int, e: int, opened: Opened, before: SiteState
    ) -> tuple[str, dict[str, Any], SiteState]:
        """A site's answer to the sum that it has opened, and its state after it."""
        server, fine = self.taken(purpose, round, e, opened, before.server)
        if purpose.name != "training":
            self._keep(before.server)
        after = SiteState(before.client, before.memory, server)
        return "reply" if fine else "fault", {}, after

    def _keep(self, state: ServerState) -> None:
        """The model that is looked at, as a file of the site's own."""
        if self.file is not None:
            data = io.BytesIO()
            np.save(data, self.model(state))
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.file, data.getvalue())

    def told(
        self, purpose: Purpose, round: int, e: int, noisy: Opened, state: ServerState
    ) -> np.ndarray:
        """What is recorded, of sums with noise: the server may compare it with ciphertexts."""
        self.taken(purpose, round, e, noisy, state)
        return np.asarray(self.finish(self.run, state, self.looks.sums(), None))

    def _now(self, purpose: Purpose, round: int, e: int) -> Any:
        return now_at(self.key, self.key, jnp.int32(round), purpose.first + e, SERVER)
