"""Engines: what carries a run out, and all that they share.

    round, messages, measuring, drive    a round in pieces, its bytes, what is recorded
    simulator/     the whole federation in one compiled loop
    sessions/      the two halves, server and site, as state machines over checked messages
    transports/    roads between them: memory (loopback), processes

May import: core, channels, client. An engine never names a method. To add a transport, copy
`transports/memory.py`.
"""
