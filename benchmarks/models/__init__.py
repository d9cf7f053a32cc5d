"""Models that PCP did not write, trained by PCP and by PyTorch."""
