"""The server half, in a ServerApp."""

from fedmin.runs.flower import server_app

app = server_app()
