"""A module's forward traced in training mode, and which of its operations bslite can run on torch's tape."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Node

from bslite.dropin.capture import Capture, Terms, check_hooks
from bslite.dropin.carried import Carried
from bslite.dropin.making import check_made
from bslite.dropin.shell import shell_of
from bslite.dropin.structure import Structure
from bslite.dropin.traced import Traced, answers, fill_caches
from bslite.errors import BsliteError, UnsupportedError
from bslite.frontends.torch import strided
from bslite.frontends.torch.autocast import has_autocast
from bslite.frontends.torch.builders import meets_complex, operation
from bslite.frontends.torch.capture import failure, trace
from bslite.frontends.torch.checks import check_tensors
from bslite.frontends.torch.graph import Graph, draws, is_getitem, transforms
from bslite.frontends.torch.parts import Survey
from bslite.frontends.torch.tracing.asking import Asking
from bslite.frontends.torch.tracing.faithful import check_faithful, written_parameters
from bslite.frontends.torch.tracing.following import enquires
from bslite.frontends.torch.tracing.noticing import noticing
from bslite.frontends.torch.training import CUMULATIVE, rewrite
from bslite.frontends.torch.values import is_narrow
from bslite.gradients import gradient, weights_as_inputs
from bslite.spec import GraphBuilder

COMPUTED = "computed from a parameter or buffer"
NARROW = "of 16 bits, which bslite does not train"
COUNTS = "it counts: torch has a gradient of nothing"
ALIAS = "a result that shares memory with another"
DRAWN = "torch's generator draws it"


def capture(
    module: torch.nn.Module, arguments: Structure, name: str, terms: Terms,
    carries: Sequence[torch.Tensor] = (),
) -> tuple[Capture, set[Node]]:  # fmt: skip
    """Trace a module's forward in the modes that its layers are in, for arguments of fixed sizes; the nodes
    that change its buffers. Of ``terms`` those count that say nothing of sizes. ``carries``: tensors that are
    to be `Carried`, after one trace took them for constants.

    Raises UnsupportedError if it cannot be traced, changes anything else, or does something that torch's
    autograd follows and a trace does not show.
    """
    check_tensors(module, "complex64")
    if learned := [key for key, p in module.named_parameters() if p.is_complex() and p.requires_grad]:
        raise UnsupportedError(f"model {name!r}: its parameter {learned[0]} is of complex numbers")
    check_hooks(module, backward=True)
    tensors = tuple(x.detach().requires_grad_(x.requires_grad) for x in arguments.leaves)
    if not (terms.again or carries):
        fill_caches(module, arguments)
    shell = shell_of(module, whole=bool(terms.noted or carries))
    carried = Carried(module, shell, carries) if carries else None
    _count_batches(shell, module)
    asking = None if terms.answers is None else Asking(terms.answers)
    traced = Traced(shell, arguments, terms.noted, asking, carried=carried)
    try:
        with saved_tensors_hooks(_same, _same), noticing() as noticed:  # the caller's own hooks see no trace
            program = trace(traced.twin, tensors, None, gradients=True)
    except Exception as e:
        if asking is None and enquires(e):
            with saved_tensors_hooks(_same, _same):
                told = answers(module, arguments, tensors, gradients=True)
            with suppress(UnsupportedError):  # the trace without them says why
                if told:
                    return capture(module, arguments, name, replace(terms, answers=told), carries)
        raise failure(traced.twin, name, e) from e
    traced.check_assigned(name)
    written = written_parameters(program)
    if learnt := [key for key in written if shell.get_parameter(key).requires_grad]:
        raise UnsupportedError(f"model {name!r}: its forward changes {learnt[0]!r} in place")
    if more := traced.unwatched(name, bool(terms.before)):
        return capture(module, arguments, name, terms.watching(more, program), carries)
    assert traced.results is not None
    if written and traced.results.noted:
        raise UnsupportedError(f"model {name!r}: its forward notes attributes, and changes {written[0]!r}")
    with saved_tensors_hooks(_same, _same):
        traced.check_notes(str(program.graph), terms.before, name, tensors, gradients=True)
    if noticed:
        raise UnsupportedError(f"model {name!r}: its forward {noticed[0]}")
    check_made(module, program.constants.values(), name)
    outside = traced.outside(program)
    learns = any(t.requires_grad for t in outside)
    if learns and not carries:
        return capture(module, arguments, name, terms, outside)
    if learns:
        raise UnsupportedError(
            f"model {name!r}: it learns a tensor that a trace takes for a constant, because torch does not "
            "know the layer that reads it, or the tensor by that name (layers belong in a ModuleList)"
        )
    if has_autocast(program):
        raise UnsupportedError(f"model {name!r}: its forward switches autocast on")
    with saved_tensors_hooks(_same, _same):
        check_faithful(name, program, traced.twin, tensors, gradients=True)
    strided.check(program.graph.nodes, name)
    effects = rewrite(program, name)
    graph = Graph(program)
    if any(operation(n) in ("slice_scatter", "select_scatter") and meets_complex(n) for n in graph.nodes):
        raise UnsupportedError(f"model {name!r}: it writes into complex numbers, where torch has no gradient")
    if any(map(transforms, graph.live)):
        raise UnsupportedError(f"model {name!r}: a part of its forward is a transform of torch.func")
    effects |= {n for n in graph.nodes if draws(n) and n not in graph.live}  # for those that draw after it
    graph.live |= effects
    for node in reversed(graph.nodes):
        if node in graph.live:
            graph.live.update(node.all_input_nodes)
    told = tuple(terms.answers or ())
    made = Capture(
        graph,
        traced.twin,
        traced.results,
        "training",
        functional=True,
        answers=told,
        outside=outside,
        carried=carried,
    )
    return made, effects


def _count_batches(shell: torch.nn.Module, module: torch.nn.Module) -> None:
    """Mark the batch norms that average over all batches, whose momentum is no number of the trace."""
    own = set(module.modules())
    for layer in shell.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.momentum is None:
            if layer in own:  # the module could not be copied
                raise UnsupportedError("a batch norm without a momentum, in a module that cannot be copied")
            layer.momentum = CUMULATIVE


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def survey_of(graph: Graph, shell: torch.nn.Module, name: str, effects: Collection[Node]) -> "TapedSurvey":
    """A survey in which every parameter and buffer is known as itself, or is a value from outside."""
    values: set[Node] = set()
    while True:
        made = TapedSurvey(graph, shell, name, effects, values)
        if not made.lost:
            return made
        values |= made.lost


class TapedSurvey(Survey):
    """A survey that leaves to torch what autograd has to see: what is computed from parameters alone, and
    what has no gradient in bslite.

    ``effects``: nodes that change buffers. ``values``: parameters and buffers that come from outside.
    ``lost``: others that an operation made constants of, which neither change with them nor have gradients.
    """

    def __init__(
        self,
        graph: Graph,
        module: torch.nn.Module,
        name: str,
        effects: Collection[Node],
        values: Collection[Node] = (),
    ) -> None:
        kinds = {s.arg.name: s.kind.name for s in graph.program.graph_signature.input_specs}
        self._learnt = {n for n in graph.stored if kinds[n.name] != "CONSTANT_TENSOR"}
        self._computed: set[Node] = set()
        self._effects, self._values = effects, values
        self.lost: set[Node] = set()
        for node in graph.nodes:
            reads = node.all_input_nodes
            if node in graph.constant and any(n in self._learnt or n in self._computed for n in reads):
                self._computed.add(node)
        graph.constant -= {*self._computed, *values}
        super().__init__(graph, module, name)

    def _survey(self, node: Node, operation_: bool) -> object:
        if node in self._effects:
            return None
        if node in self._values:
            return self._from_outside(node)
        if node in self._computed:
            return self._problem(node, COMPUTED)
        if operation_ and (reason := _left(node)):
            return self._problem(node, reason)
        before = len(self.store.builder.nodes)
        result = super()._survey(node, operation_)
        if node in self.buildable and not is_getitem(node):
            self.lost |= self._made_constants(node, before)
            try:
                for i in range(before, len(self.store.builder.nodes)):
                    self._differentiate(i)
            except BsliteError as e:
                self.buildable.discard(node)
                return self._problem(node, str(e).partition(": ")[2] or str(e))
        return result

    def _made_constants(self, node: Node, before: int) -> set[Node]:
        """The parameters and buffers that ``node`` reads, but none of its layers, from ``before`` on."""
        nodes = self.store.builder.nodes
        constants = {n.name: n for n in nodes if n.op == "constant"}
        layers = [
            *nodes[before:],
            *(constants[i] for n in nodes[before:] for i in n.inputs if i in constants),
        ]
        arrays = [self.store.builder.params[key] for n in layers for key in n.params.values()]
        known = {(a.ctypes.data, a.shape, tuple(s // a.itemsize for s in a.strides)) for a in arrays}
        lost = set()
        for source in node.all_input_nodes:
            if source in self._learnt and source not in self._values:
                tensor = self._constant_placeholder(source).data
                own = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
                if tensor.dtype == torch.float32 and own not in known:
                    lost.add(source)
        return lost

    def _differentiate(self, i: int) -> None:
        """Raise UnsupportedError if a node of the model has no gradient."""
        node = self.store.builder.nodes[i]
        names = list(dict.fromkeys(node.inputs))
        if not names:
            return
        one = GraphBuilder("one")
        for name in names:
            if not all(getattr(d, "is_number", True) for d in self.store.shapes[name]):
                raise UnsupportedError("a size depends on the numbers of a tensor")
            shape = [int(d) for d in self.store.shapes[name]]
            one.input(name, shape, shape, self.store.dtypes[name])
        one.params.update({key: self.store.builder.params[key] for key in node.params.values()})
        made = one.add(node.op, node.name, *node.inputs, params=dict(node.params), **node.attrs)
        spec = one.build(made)
        if spec.dtypes[made] != "float32":
            return
        given = weights_as_inputs(
            spec, [k for k, p in spec.params.items() if p.dtype == "float32" and p.ndim]
        )
        gradient(given, [x.name for x in given.inputs if x.dtype == "float32"], unit=False)


def _left(node: Node) -> str:
    """Why torch has to run an operation; empty if it has not."""
    name, args = operation(node), node.args
    if any(is_narrow(n.meta.get("val")) for n in (node, *node.all_input_nodes)):
        return NARROW
    if name == "bslite.noise":
        return DRAWN
    if name == "linalg_vector_norm" and args[1:2] == (0,):
        return COUNTS
    if name == "detach" and any(user.op == "output" for user in node.users):
        return ALIAS
    if name == "embedding" and any(args[3:]):
        return "scale_grad_by_freq or sparse"
    if name == "instance_norm" and args[3] is not None and args[5]:
        return "it notes statistics"
    return ""
