"""The command line: `app.py` has the commands, the others what they print.

May import: everything. To add a command, copy `version` in `app.py`.
"""
