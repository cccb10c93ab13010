"""Readers of files as others wrote them: images, LIBSVM, plays, parties' tables."""
