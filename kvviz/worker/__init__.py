"""The process that owns the device. It knows the hub's pipe and no viewer."""
