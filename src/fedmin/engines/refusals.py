"""What a channel cannot carry, and what absent clients make impossible: refused before any work."""

from typing import Any

from fedmin.core.channel import Among, Channel
from fedmin.core.fitting import numbers_to_count
from fedmin.core.method import Method, complete
from fedmin.core.participation import Participation
from fedmin.core.problem import Problem
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows


def check_trips(
    problem: Problem,
    roster: Roster,
    method: Method,
    participation: Participation,
    channel: Channel,
) -> None:
    """Refuse absent clients where all are needed, and a channel that cannot carry the replies."""
    name = type(method).__name__
    trips = method.exchanges(problem, roster)
    if (roster.owners is not None or any(map(complete, trips))) and not participation.everyone:
        raise ValueError(
            f"{name} needs every client in every round; participation is {participation}, "
            f"give Everyone()"
        )
    most = participation.most(roster.clients)
    if most < channel.fewest:
        raise ValueError(
            f"{channel} sums at least {channel.fewest} clients; a round has at most {most} of "
            f"{roster.clients}: give more clients, or Plain()"
        )
    if channel.fewest > 1 and channel.noises and not participation.everyone:
        raise ValueError(
            f"{channel} passes rounds of fewer than {channel.fewest} clients, and whether one came "
            f"may decide that, which noise does not cover; give Everyone()"
        )
    embedding = [channel.for_trip(trip) for trip in trips if trip.embeds and trip.summed]
    if channel.hides and not all(isinstance(carrier, Among) for carrier in embedding):
        raise ValueError(
            f"{channel} does not hide embeddings, and where columns are split they are what is "
            f"added up: give SecureSum() or Plain()"
        )
    if channel.hides and method.alone():
        raise ValueError(f"{name} {method.alone()}; channel is {channel}")
    for trip in trips:
        why = channel.for_trip(trip).refuses(trip)
        if why:
            gathers = channel.hides and getattr(trip, "reduce", "sum") == "gather"
            way = f"{method.sums} or Plain()" if gathers and method.sums else "Plain()"
            raise ValueError(f"{name} {why}; channel is {channel}, give {way}")


def check_untold(
    problem: Problem,
    roster: Roster,
    method: Method,
    participation: Participation,
    channel: Channel,
) -> None:
    """Refuse what needs to know how many rows a client has, where nobody is told."""
    name, trips = type(method).__name__, method.exchanges(problem, roster)
    gathers = any(getattr(trip, "reduce", "") == "gather" for trip in trips)
    wrong = ""
    if gathers:
        way = f"give {method.sums}" if method.sums else "give a method of sums"
        wrong = f"{name} gathers replies and counts each by its p_i; {way}, or weights='sizes'"
    elif not channel.weighs:
        wrong = f"{channel} needs each p_i; give SecureSum(), whose sums have their weight in them"
    elif channel.noises:
        wrong = f"the noise of {channel} is made for p_i that are known; give weights='sizes'"
    elif not participation.everyone:
        wrong = (
            f"the weight of a sum of some would tell of the others; participation is "
            f"{participation}, give Everyone()"
        )
    elif numbers_to_count(problem, roster):
        wrong = "limits on groups are measured by the numbers of their rows; give weights='sizes'"
    if wrong:
        raise ValueError(f"weights are 'secret': {wrong}")


def check_blind(
    channel: Channel, participation: Participation, server_rows: Rows | None, record: Any
) -> None:
    """Refuse what needs a server that has the model."""
    wrong = ""
    if not participation.everyone:
        wrong = "every site takes in every sum; give participation=Everyone()"
    elif server_rows is not None:
        wrong = "rows of the server's own have no model there to be used with; give none"
    elif any(metric.on == "test" for metric in record or ()):
        wrong = "test rows are the server's, which has no model; record metrics of clients' rows"
    elif record is not None and not any(metric.needs for metric in record):
        wrong = "what is recorded comes with sums over clients' rows; record Objective()"
    elif any(getattr(stage, "at", "") == "server" for stage in getattr(channel, "stages", ())):
        wrong = "noise of the server's would be known to all sites; give Noise(at='sites')"
    if wrong:
        raise ValueError(f"{channel}: {wrong}")


def check_quorum(channel: Channel, roster: Roster, quorum: float) -> None:
    """Refuse rounds without some of their sites where nobody can make up for one that is missed."""
    why = ""
    if channel.blind:
        why = (
            f"{channel}: a site that misses a sum has another model from then on, and nobody can "
            f"bring it up to date"
        )
    elif not roster.sizes_told:
        why = "weights are 'secret': a sum without a site would tell how many rows it has"
    if why and quorum < 1:
        raise ValueError(
            f"{why}; a round needs all sites: give quorum = 1.0 (a site that is away is waited "
            f"for), and no absent ones"
        )
