"""Data sets that are made, with the true answer beside them."""
