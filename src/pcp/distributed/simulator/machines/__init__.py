"""Simulated machines: what is on their disks, and what stays when a process stops."""
