"""Speed and memory of fedmin beside hand-written JAX and plain BLAS: `make bench`."""
