"""What can be asked for and measured: one folder for each kind, and the registry of kinds."""
