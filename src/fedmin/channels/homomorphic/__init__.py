"""The two halves of a homomorphic sum.

legs    the trips around an exchange, and what is in their messages
site    a site: it signs its key, makes or reads the sites' key, encrypts, opens the sum
server  the server: it passes keys on and adds ciphertexts
"""
