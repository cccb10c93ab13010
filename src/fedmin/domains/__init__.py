"""Sets that a solution may be confined to, one family a file."""

from fedmin.domain import Free

DOMAINS = {"free": Free}

__all__ = ["DOMAINS"]
