"""What a builder raises where bslite cannot express an operation."""


class Unsupported(Exception):
    """A form of an operation that bslite cannot express; the message says which."""


class Varies(Unsupported):
    """A free size (the batch, say) is used where only a fixed one can be expressed."""
