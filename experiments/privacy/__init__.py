"""Accuracy against epsilon: what privacy of rows costs, on MNIST and on credit default."""
