"""Where what one party is sent gives it another one's rows exactly, by arithmetic.

    columns    an embedding is h_i = X_i W_i^T. Whoever reads h_i and has W_i computes
               X_i = h_i pinv(W_i^T), if the block has no more columns than the embedding numbers
    a row      the gradient of a linear first layer on one row z is slope z^T: z, up to a factor

It is told of a run before it begins (`minimize` warns, `fedmin show` prints). Nothing here says
that a run without such a sentence is private: several messages together tell more than one (see
docs/vertical.md), and what can be inferred by other means is the matter of audits.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from fedmin.core import payload
from fedmin.core.channel import Among
from fedmin.core.column_problem import FirstLayer
from fedmin.core.method import Exchange, Relay
from fedmin.privacy.observers import SERVER, Purpose
from fedmin.privacy.policy import innermost


class PrivacyWarning(UserWarning):
    """What a run lets one party compute exactly of another one's rows."""


def exposures(run: Any, roster: Any, purposes: Iterable[Purpose]) -> list[str]:
    """Sentences on what follows exactly from single messages of a run; none if nothing is known.

    `purposes` are the trips of a round and of a look at the model, as `engines.messages` finds
    them.

    >>> import fedmin
    >>> from fedmin.engines.messages import messages_of
    >>> from fedmin.engines.round import Run
    >>> from fedmin.privacy.exposures import exposures
    >>> roster = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3)).roster()
    >>> method = fedmin.FedSGD(batches=fedmin.WithReplacement(1))
    >>> pieces = fedmin.Softmax(13, 3), method, fedmin.Plain(), fedmin.Everyone()
    >>> run = Run(*pieces, record=(), stop=None)
    >>> for words in exposures(run, roster, [messages_of(run, roster).training]):
    ...     print(words)
    privacy: a reply is of one row, and its gradient of a linear first layer is that row times a \
number: the server, which sees single replies, has the row; take larger batches
    """
    layer = innermost(run.problem)
    if not isinstance(layer, FirstLayer):
        return []
    purposes = list(purposes)
    return [*_columns(run, roster, layer, purposes), *_row(run, roster, layer, purposes)]


def _columns(run: Any, roster: Any, layer: Any, purposes: list[Purpose]) -> Iterator[str]:
    owners, e = roster.owners, layer.embedding
    if owners is None:
        return
    sizes = np.asarray(owners.sizes)
    narrow = [i for i in range(roster.clients) if sizes[i] <= e]
    named = ", ".join(f"{roster.names[i]} ({sizes[i]})" for i in narrow)
    blocks = f"no more columns than an embedding has numbers ({e})"
    if owners.labels == SERVER and narrow and _seen_singly(purposes, "embedding"):
        yield (
            f"privacy: the server sees embeddings as they are and has the blocks of {named}, which "
            f"have {blocks}: it can compute these clients' columns; let a client have the labels, "
            f"or make embeddings shorter"
        )
    if owners.labels == SERVER or roster.clients == 1 or not _begins_known(run, layer):
        return
    if not any(_opened(p, form) for p in purposes for form in p.forms):
        return
    holder = owners.labels if isinstance(owners.labels, int) else None
    who = "every other client" if holder is None else f"client {roster.names[holder]}"
    of = ", ".join(f"{roster.names[i]} ({sizes[i]})" for i in narrow if i != holder)
    if of:
        yield (
            f"privacy: {who} reads embeddings of {of}, and has the first blocks, which follow from "
            f"the seed or the start that all parties know; they have {blocks}: it can compute "
            f"these clients' columns from the first round; make embeddings shorter"
        )


def _begins_known(run: Any, layer: Any) -> bool:
    """Whether the first blocks are not zeros: then they are drawn by the seed, or given."""
    x = np.asarray(run.origin.init(jax.random.key(0)))
    return bool(np.any(x[: layer.embedding * layer.features]))


def _row(run: Any, roster: Any, layer: Any, purposes: list[Purpose]) -> Iterator[str]:
    held = roster.capacity if roster.owners is None else roster.owners.rows
    batches = getattr(run.method, "batches", None)
    size = getattr(batches, "size", getattr(batches, "first", held))
    alone = min(size, held) == 1 and getattr(run.method, "local_steps", 1) == 1
    if not alone or (getattr(run.method, "epochs", None) is not None and held > 1):
        return
    width = layer.features if roster.width is None else roster.width
    if any(_has_gradient(p, layer.embedding * width) for p in purposes if p.name == "training"):
        yield (
            "privacy: a reply is of one row, and its gradient of a linear first layer is that row "
            "times a number: the server, which sees single replies, has the row; take larger "
            "batches"
        )


def _singly(purpose: Purpose, form: Any) -> bool:
    """Whether the server sees single replies of a trip."""
    trip = form.trip
    learns = purpose.channel.for_trip(trip).learns
    return isinstance(trip, Exchange) and (trip.reduce != "sum" or learns.each)


def _opened(purpose: Purpose, form: Any) -> bool:
    """Whether clients open single embeddings of others."""
    trip = form.trip
    hidden = isinstance(purpose.channel.for_trip(trip), Among)
    return isinstance(trip, Relay) and trip.embeds and not hidden


def _seen_singly(purposes: list[Purpose], part: str) -> bool:
    return any(_singly(p, form) and part in form.sent for p in purposes for form in p.forms)


def _has_gradient(purpose: Purpose, size: int) -> bool:
    """Whether a reply that the server sees has a dense part that is as long as the first layer."""
    for form in purpose.forms:
        if _singly(purpose, form):
            parts = jax.tree.leaves(form.sent, is_leaf=payload.is_payload)
            if any(not payload.is_payload(a) and a.size >= size for a in parts):
                return True
    return False
