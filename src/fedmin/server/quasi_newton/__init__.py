"""Curvature from pairs (s, y): BFGS and its rules for bad pairs, L-BFGS, forms to keep."""
