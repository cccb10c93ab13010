"""What a server may solve between two rounds."""
