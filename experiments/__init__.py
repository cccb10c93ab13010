"""The papers' claims as executable checks; each folder prints paper | ours | verdict."""
