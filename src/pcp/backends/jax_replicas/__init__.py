"""What JAX knows of programs that run as replicas on several devices."""
