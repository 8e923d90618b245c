"""The notebook's front door: `compare()` and `watch()`."""
