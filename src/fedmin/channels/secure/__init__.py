"""The secure sum's own trips, one primitive a file; docs/secure-sums.md is their specification.

shamir        shares of a secret, of which t together say what it is
derivations   every key, signature and mask, each with a domain of its own
masks         numbers modulo 2^w: pads, and their sums
legs          the trips, and who is summed with whom
site, server  the two roles of one exchange
"""
