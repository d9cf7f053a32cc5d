"""Bulk connections: blobs in chunks, asked for and answered, resumed where they broke off."""
