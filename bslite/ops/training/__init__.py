"""Ops that training takes: weights that are values, statistics of a batch, gradients as ops of their own."""

from bslite.registry import load_modules

load_modules(__name__)
