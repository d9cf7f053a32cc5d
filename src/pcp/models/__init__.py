"""Models as functions of parameters and inputs."""
