"""A real GPU: `driver` is the whole of it, the other files its parts."""
