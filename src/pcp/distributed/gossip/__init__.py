"""Workers that exchange in pairs: who with whom, what they offer each other, and what becomes of it."""
