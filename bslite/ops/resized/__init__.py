"""Ops that make images larger or smaller, and the taps that they are computed from."""

from bslite.registry import load_modules

load_modules(__name__)
