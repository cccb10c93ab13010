"""Privacy: who learns what of whom in a run; who is who; what a site allows, and what left it.

observers.py     what leaves each party and who sees it, in words and as data: `fedmin show`
certificates.py  what certificates say and the files they are in
authority.py     a federation's own certificate authority
identity.py      a party's key and certificate, and whom it believes
own_secret.py    what a site draws from, and names its rows under: from the operating system
policy.py        what a site allows, whatever the server says
departures.py    a log of everything that left a site; chained.py  a file that shows its changes
alignment.py     rows of several parties in one order; intersection.py  whose ids two parties share
accountant.py    what rounds of noise add up to: epsilon; mechanisms are elsewhere
exposures.py     where one message gives away rows exactly
search.py        bytes searched for numbers that should not be there; audit/  what can be inferred
May import: core, channels.
"""

from fedmin.privacy.alignment import align

__all__ = ["align"]
