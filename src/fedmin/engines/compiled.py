"""Compiled programs that the next run of the same form uses again, and no more of them than fit.

A compiled program takes dozens of pieces of memory, of which Linux allows a process some 65,000;
where there are no more the compiler dies without a word. So the least recently used ones are
forgotten, each by itself: a user's own compiled functions are never touched.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax

MOST = 192  # forms whose programs are kept


class Recent:
    """What was made for each form of a run; the newest `most` forms are kept.

    >>> import jax
    >>> from fedmin.engines.compiled import Recent
    >>> kept = Recent(most=1)
    >>> first = kept.get("a", lambda: (jax.jit(lambda x: x + 1),))
    >>> kept.get("a", lambda: 1 / 0) is first
    True
    >>> _ = kept.get("b", lambda: (jax.jit(lambda x: x + 2),))
    >>> list(kept.forms)
    ['b']
    """

    def __init__(self, most: int):
        self.most = most
        self.forms: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, form: Hashable, make: Callable[[], Any]) -> Any:
        """What belongs to this form, made if it is not there."""
        if form not in self.forms:
            self.forms[form] = make()
        self.forms.move_to_end(form)
        while len(self.forms) > self.most:
            _, old = self.forms.popitem(last=False)
            for function in old:
                if hasattr(function, "clear_cache"):
                    function.clear_cache()
        return self.forms[form]


PROGRAMS = Recent(MOST)  # jitted functions
SHAPES = Recent(4 * MOST)  # of messages: found by tracing, which takes as long as a short run


class Filtered:
    """`eqx.filter_jit`, whose programs can be forgotten like those of `jax.jit`."""

    def __init__(self, function: Callable):
        @functools.wraps(function)
        def own(*args: Any) -> Any:  # else every form would find the programs of all others
            return function(*args)

        self.jitted: Any = eqx.filter_jit(own)

    def __call__(self, *args: Any) -> Any:
        return self.jitted(*args)

    def clear_cache(self) -> None:
        """Forget what was compiled."""
        self.jitted._cached.clear_cache()


def form_of(*trees: Any) -> Hashable:
    """What a program for these arguments depends on: their structure, shapes and types."""

    def leaf(a: Any) -> Any:
        if hasattr(a, "dtype") and hasattr(a, "shape"):
            return tuple(a.shape), str(a.dtype)
        # a word or a flag may decide what travels; of a number only its kind does
        numbers = isinstance(a, int | float | complex) and not isinstance(a, bool)
        return type(a) if numbers else (type(a), a)

    found = []
    for tree in trees:
        leaves, structure = jax.tree.flatten(tree)
        found.append((structure, tuple(map(leaf, leaves))))
    settings = (
        jax.config.jax_enable_x64,  # type: ignore[attr-defined]
        jax.config.jax_numpy_dtype_promotion,  # type: ignore[attr-defined]
        jax.config.read("jax_disable_most_optimizations"),  # which decides the last digits
    )
    return tuple(found), settings
