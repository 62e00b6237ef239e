"""Packed sequences: ``pack_padded_sequence``, ``pad_packed_sequence`` around recurrent modules, for export.

torch.export cannot follow them: how long the packed data is depends on the lengths' values. `Packing`, active
in the exporting thread alone, lets them run on stand-ins. Data stays padded, ``[T*N, ...]`` with time first;
the place of ``batch_sizes`` takes a tensor that stands for it, by which the recurrent call finds the lengths,
and they stay an input. Sequences are never sorted: the permutations of ``enforce_sorted=False`` stand for
themselves and drop out. What else a forward does with a packed sequence is looked at by `misuse`.

The stand-ins are operations of torch with an implementation, so a part of a graph that stays in torch runs.
"""
