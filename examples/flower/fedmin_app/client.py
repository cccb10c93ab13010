"""The site half, in a ClientApp; `flower-supernode --node-config 'site="/path/site.toml"'`."""

from fedmin.runs.flower import client_app

app = client_app()
