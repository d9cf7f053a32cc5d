"""Workers that speak to each other: who is there and where, blobs from any holder, and the server that holds them out."""
