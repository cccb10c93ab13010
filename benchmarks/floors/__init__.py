"""The best hand-written JAX of each workload (w1 .. w5), and plain BLAS loops of the same work."""
