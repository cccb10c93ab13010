"""Roads between the halves: they carry bytes and know nothing of what is in them."""
