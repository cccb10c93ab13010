"""Flower: the same sessions over a SuperLink and its SuperNodes, for those who run them already.

grid.py    a `Transport` whose messages all go through Flower's grid: a few seconds a trip, since
           Flower asks at intervals and starts a process for every message

The apps themselves, and the other way, by which one Flower message opens a gRPC stream, are in
`fedmin.runs.flower`. Needs `pip install 'fedmin[flower]'`.
"""
