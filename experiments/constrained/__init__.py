"""Constrained federated learning: SSCA and its rivals on seven problems, with equal budgets."""
