"""The command line.

app.py        the commands; in keys.py, site.py and machines.py those for real machines
catalog.py    what `fedmin list` prints, and tables that line up
demo/         what `fedmin demo` runs and draws, a file for each card
run_table.py  what `fedmin run` shows while it runs
signals.py    Ctrl-C and SIGTERM while it runs
May import: everything. To add a command, copy `version` in `app.py`.
"""
