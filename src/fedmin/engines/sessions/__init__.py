"""The two halves of a run: `server.py` never sees a row, `site.py` never sees another site.

Both are state machines over messages, without sockets, threads or clocks. `wire.py` has the bytes,
`seal.py` what clients send each other, `checkpoint.py` what survives a crash.
"""
