"""Streaming: recurrent models fed step by step or in chunks, their state carried from call to call."""

from bslite.streaming.session import Session
from bslite.streaming.stepping import step_model

__all__ = ["Session", "step_model"]
