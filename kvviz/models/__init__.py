"""From an id, a folder or a config.json to layers: which model it is and what each layer keeps. No torch."""
