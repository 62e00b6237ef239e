"""Calls of a wrapped module in training: a trace on torch's tape, with parts of it in bslite."""
