"""Examples in docstrings, as blocks of code on the site."""

import re

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*(?:\n(?!\s*$).*)*\n?)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around every example, so that none of it is read as Markdown."""

    def on_object(self, *, obj, **rest) -> None:
        """Change a docstring as it is read."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", text)
