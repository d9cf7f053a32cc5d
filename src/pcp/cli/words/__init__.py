"""The words of command lines: how they are read, what is said of wrong ones, how they are explained."""
