"""What everything stands on: errors, checks, settings, logs, small words. Standard library and platformdirs."""
