"""Lengths of sequences, checked."""

from bslite.errors import InputError
from bslite.reference.registry import Array, reference


@reference("sequence_lengths")
def sequence_lengths(lengths: Array, x: Array, *, sorted: bool, whole: bool, longest: int | None) -> Array:
    """The lengths unchanged, checked as torch.nn.utils.rnn.pack_padded_sequence checks them.

    With ``whole``, the longest must be T, so that pad_packed_sequence would cut nothing off.
    """
    steps = x.shape[0]
    most = steps if longest is None else min(longest, steps)
    wrong = (lengths < 1) | (lengths > most)
    if wrong.any():
        raise InputError(f"sequence length {lengths[wrong][0]} is not between 1 and {most}")
    rises = lengths[1:] > lengths[:-1]
    if sorted and rises.any():
        raise InputError(
            f"sequence length {lengths[1:][rises][0]} follows a shorter one; with enforce_sorted=True they "
            "must be in decreasing order"
        )
    if whole and lengths.max() < steps:
        raise InputError(
            f"the longest sequence has {lengths.max()} of {steps} steps: cut x to it, or give "
            f"pad_packed_sequence total_length={steps}"
        )
    return lengths.copy()
