"""Control flow as operations of the program: loops and branches."""
