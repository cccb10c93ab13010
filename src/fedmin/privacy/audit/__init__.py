"""Audits: what can be inferred of rows from what an observer really sees.

inversion.py   rank of the map from rows to a message, label inference, reconstruction, scores
attack.py      all attacks on one view of one observer, and the best of what they rebuild
findings.py    what an audit found, as data, in words and in files
They know a message as a function of rows, and nothing of methods, channels or engines: what is
really sent is found by engines/observing.py, and `fedmin.audit` puts the two together.
May import: core.
"""
