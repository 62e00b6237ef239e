"""The arguments of a call in the order of a model's inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import InputError


def ordered(model: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """One value per name, given in order, by keyword, or as one dict by name.

    InputError that names what is missing, repeated or unknown.
    """
    if not kwargs:  # the usual cases, quickly
        if len(args) != 1:
            if len(args) == len(names):
                return list(args)
        elif type(only := args[0]) is dict:
            if len(only) == len(names):
                try:
                    return [only[n] for n in names]
                except KeyError:
                    pass  # what is wrong is said below
        elif len(names) == 1 and hasattr(only, "shape"):
            return [only]
    takes = f"model {model!r} takes {len(names)} input{'s' * (len(names) != 1)}, {', '.join(names)}"
    if len(args) == 1 and isinstance(args[0], Mapping):
        if twice := [str(n) for n in args[0] if n in kwargs]:
            raise InputError(f"{takes}; {', '.join(twice)} is given twice")
        kwargs, args = {**args[0], **kwargs}, ()
    elif len(args) == 1 and isinstance(args[0], (list, tuple)) and len(names) > 1:
        args = args[0]
    if len(args) > len(names):
        raise InputError(f"{takes}; got {len(args)}")
    given = dict(zip(names, args, strict=False))
    if repeated := [n for n in kwargs if n in given]:
        raise InputError(f"{takes}; {', '.join(map(str, repeated))} is given twice")
    if unknown := [str(n) for n in kwargs if n not in names]:
        raise InputError(f"{takes}; there is no input {', '.join(unknown)}")
    given.update(kwargs)
    if missing := [n for n in names if n not in given]:
        raise InputError(f"{takes}; {', '.join(missing)} is missing")
    return [given[n] for n in names]
