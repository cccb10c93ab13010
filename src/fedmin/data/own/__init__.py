"""Tables of one's own: read, agreed on by all sites, and prepared by sums."""
