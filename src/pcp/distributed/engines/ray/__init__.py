"""Shepherd and Workers as actors of a Ray cluster.

Inside a Ray cluster everybody may run code as everybody: there are no keys between the actors and no confined processes. Only
machines that one owner trusts belong into one cluster.
"""
