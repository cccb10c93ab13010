"""Public data sets: their entries, where their files are found, how they become tables."""
