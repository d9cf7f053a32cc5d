"""Control flow as operations of the program: loops, scans and branches."""
