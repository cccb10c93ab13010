"""Who gets which rows or columns: partitioners, one line each in `PARTITIONERS`."""
