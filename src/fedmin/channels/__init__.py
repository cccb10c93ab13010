"""Channels: the stages of the road from a client's reply to the sum that the server learns.

One idea a file, one line in `CHANNELS`. May import: core. To add one, follow CONTRIBUTING.md,
"Add a channel", or copy `clip.py`, the shortest that does something.
"""

from fedmin.channels.plain import Plain
from fedmin.channels.topk import TopK

CHANNELS = {"plain": Plain, "topk": TopK}

__all__ = ["CHANNELS", "Plain", "TopK"]
