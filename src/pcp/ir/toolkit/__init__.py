"""What every transformation of MLIR is made of: reading attributes, regions and dataflow; copying, inlining, erasing.

Each helper stands here once; folders above `ir` import it from its file. No walk recurses.
"""
