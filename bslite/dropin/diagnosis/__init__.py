"""What a wrapped module did: reports, explanations, and the search for its first wrong layer."""
