"""Privacy: who learns what of whom in a run; who is who; what a site allows, and what left it.

observers.py     what leaves each party and who sees it, in words and as data: `fedmin show`
certificates.py  what certificates say and the files they are in
authority.py     a federation's own certificate authority
identity.py      a party's key and certificate, and whom it believes
policy.py        what a site allows, whatever the server says
departures.py    a log of everything that left a site; chained.py  a file that shows its changes
exposures.py     where one message gives away rows exactly
May import: core, channels. Accountants, set intersection and audits have their place here too.
"""
