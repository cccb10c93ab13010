"""Plain: every reply travels as it is."""

from fedmin.core.channel import Channel


class Plain(Channel):
    """Replies as they are: nothing is lost, and each is as large as the model.

    >>> import fedmin
    >>> fedmin.Plain()
    Plain()
    """

    lossless = True
