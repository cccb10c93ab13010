"""Plain: every reply travels as it is."""

from fedmin.core.channel import Channel


class Plain(Channel):
    """Replies as they are: exact, and as large as the model.

    >>> import fedmin
    >>> fedmin.Plain()
    Plain()
    """

    exact = True
