"""Readers of files as others wrote them: images, LIBSVM, speeches of plays, parties' tables."""
