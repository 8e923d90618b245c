"""A loaded model that decodes: modes, the loop that yields steps, and reading the cache between them."""
