"""The device and its clock: which one, its memory, who holds it, what it reaches, where time goes."""
