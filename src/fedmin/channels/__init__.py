"""Channels, one idea a file."""

from fedmin.channels.plain import Plain
from fedmin.channels.topk import TopK

CHANNELS = {"plain": Plain, "topk": TopK}

__all__ = ["CHANNELS", "Plain", "TopK"]
