"""fedmin as a Flower app: the two halves are in server.py and client.py."""
