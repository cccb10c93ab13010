"""gRPC: one stream a site, opened by the site, with mutual TLS; the certificate is the identity.

frames.py     messages in pieces, bounded in size and time
listener.py   the server's end: who may come in, who is there
beforehand.py what sites are asked before the run is known
link.py       the stream to one of them
streams.py    a `Transport` over it: asks, deadlines, late replies
joining.py    the site's end: calls, answers, calls again
"""
