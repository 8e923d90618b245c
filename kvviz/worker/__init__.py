"""The process that owns the device. It knows the scheduler's pipe and no viewer."""
