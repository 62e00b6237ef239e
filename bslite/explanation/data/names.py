"""Which node of the simplified model does the work of each node of the user's model."""

from bslite.spec import ModelSpec


def owners(original: ModelSpec, spec: ModelSpec) -> dict[str, str]:
    """Each node of ``original`` -> the node of ``spec``, its simplified form, that does its work.

    A convolution whose batch norm was folded in goes by the batch norm's name; a dropout, which does nothing,
    belongs to what makes its input, or to the first layer if that is an input of the model.
    """
    kept = {n.name: n for n in spec.nodes}
    before = {n.name: n for n in original.nodes}

    def through(name: str) -> str:
        while name in before and before[name].op == "dropout":
            name = before[name].inputs[0]
        return name

    folded = {
        through(n.inputs[0]): n.name
        for n in original.nodes
        if n.op == "batch_norm" and n.name in kept and kept[n.name].op != "batch_norm"
    }
    found = {}
    for node in original.nodes:
        name = through(node.name)
        name = name if name in kept else folded.get(name, spec.nodes[0].name)
        found[node.name] = name
    return found
