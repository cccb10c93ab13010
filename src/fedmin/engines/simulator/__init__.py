"""The simulator: a compiled picture of a whole federation, as fast as hand-written JAX."""
