"""Packed sequences: ``pack_padded_sequence``, ``pad_packed_sequence`` around recurrent modules, for export.

torch.export cannot trace them, because the length of packed data depends on the values of the lengths. The
context of `mode`, active in the exporting thread alone, replaces them by stand-ins. Data stays padded, with
time first: ``[T*N, ...]``. A stand-in tensor replaces ``batch_sizes``; the recurrent call finds the lengths
by it, and the lengths stay an input of the model. Sequences are never sorted: the permutations of
``enforce_sorted=False`` become stand-ins that drop out. `uses` refuses every other use of a packed sequence.

The stand-ins are torch operations that compute (`operations`), so a part of a graph that stays in torch runs.
"""
