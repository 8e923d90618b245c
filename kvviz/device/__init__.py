"""The device and its clock: which device it is, its memory, its lock, its ceilings, and where the time goes."""
