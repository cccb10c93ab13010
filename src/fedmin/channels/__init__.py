"""Channels: the stages between a client's reply and the sum that the server learns.

One idea a file, one line in `CHANNELS`. May import: core. To add one, follow CONTRIBUTING.md,
"Add a channel", or copy `clip.py`, the shortest that does something.
"""

from fedmin.channels.clip import Clip
from fedmin.channels.ef21 import EF21
from fedmin.channels.homomorphic_sum import HomomorphicSum
from fedmin.channels.noise import Noise
from fedmin.channels.plain import Plain
from fedmin.channels.secure_sum import SecureSum
from fedmin.channels.stages import Chain, chain
from fedmin.channels.topk import TopK
from fedmin.core.channel import Channel

CHANNELS: dict[str, type[Channel]] = {
    "plain": Plain,
    "topk": TopK,
    "ef21": EF21,
    "clip": Clip,
    "noise": Noise,
    "chain": Chain,
    "homomorphicsum": HomomorphicSum,
    "secure_sum": SecureSum,
}

__all__ = [
    "CHANNELS", "EF21", "Chain", "Clip", "HomomorphicSum", "Noise", "Plain", "SecureSum", "TopK",
    "chain",
]  # fmt: skip
