"""What measures runs over emulated lines and under faults: the lines, the clocks, the draws, the tables."""
