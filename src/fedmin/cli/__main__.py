"""python -m fedmin.cli"""

from fedmin.cli.app import app

app()
