"""Workers of simulated runs that listen: blobs from any holder, exchanges in pairs, and who follows what they come to."""
