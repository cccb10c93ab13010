"""Reports: pictures and pages of runs, for people.

figure.py   curves as a PNG (matplotlib)
page.py     one self-contained HTML page that opens offline; page.css and page.js are pasted into it
tables.py   the page's tables: finals, bytes by kind, parameters, versions
holders.py  the page's picture of who holds what
"""

from fedmin.reports.figure import figure
from fedmin.reports.page import page
from fedmin.reports.versions import versions

__all__ = ["figure", "page", "versions"]
