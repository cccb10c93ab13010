"""Runs: a configuration file becomes runs, and a run becomes a folder.

document.py    a TOML document whose errors say their line
registries.py  every name that a file may use, and what it stands for
fields.py      what a field of a class takes, read from its type
values.py      from tables of a file to values
pieces.py      from the sections of a file to what `minimize` is given
terms.py       [federation] of a file: who takes part on real machines
presence.py    who of a run's machines is there, kept in its folder and on its page
site_file.py   site.toml: what a site needs to take part, and what it allows
grid.py        the runs of a file: one for each combination of its values
config.py      a configuration file, read and checked
folder.py      a run carried out in its folder; reading.py, costs.py, loggers.py, watch.py around it
May import: everything but cli. To add a logger, copy `TensorBoard` in `loggers.py`.
"""
