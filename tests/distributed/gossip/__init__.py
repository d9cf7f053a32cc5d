"""Workers that exchange in pairs."""
