"""Reports: pictures and pages of runs, for people.

figures.py   curves as a PNG (matplotlib)
page.py      one HTML page that opens offline; page.css and page.js are pasted into it
tables.py    the page's tables: finals, bytes by kind, parameters, versions
holdings.py  the page's picture of who holds what
compare.py   runs side by side, over seeds
claims.py    the papers' claims and what was measured of them
May import: core. To add a section, give `page` a pair (heading, HTML).
"""

from fedmin.core.environment import versions
from fedmin.reports.figures import figure
from fedmin.reports.page import page

__all__ = ["figure", "page", "versions"]
