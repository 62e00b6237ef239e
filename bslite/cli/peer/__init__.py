"""A model as torch runs it: the rival of `bench` and `verify`, and the judge of the tests."""
