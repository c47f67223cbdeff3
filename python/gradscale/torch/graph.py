"""Names of the places where gradients are rounded, read off autograd's graph.

A site is named after the layer whose output's gradient it is. Layers are known by their parameters, so nothing has to be
hooked or recorded in the forward pass: an operator that reads a parameter has the name of that, others the name of the
nearest such operator before them. Two calls of one layer have one name, and so one site.
"""

from __future__ import annotations

import json
import re
import zlib

import torch

from . import boundaries

#: Nodes that pass on, sum or move gradients. Their results are rounded at a later node, once.
HANDS_ON = frozenset(
    "ViewBackward0 UnsafeViewBackward0 ReshapeAliasBackward0 TBackward0 TransposeBackward0 PermuteBackward0 ExpandBackward0"
    " SqueezeBackward0 SqueezeBackward1 SqueezeBackward2 UnsqueezeBackward0 CloneBackward0 AliasBackward0 DetachBackward0"
    " SelectBackward0 SplitBackward0 SplitWithSizesBackward0 UnbindBackward0 StackBackward0 CatBackward0 SliceBackward0"
    " AddBackward0 SubBackward0 NegBackward0 AsStridedBackward0 ToCopyBackward0 torch::autograd::AccumulateGrad EnterBackward"
    " ViewAsBackward0 RepeatBackward0".split()
)
_PRODUCTS = frozenset("addmm mm bmm convolution linear conv2d".split())
_SUFFIX = re.compile(r"Backward\d*$|Backward$")
_UNREACHED = 1 << 30

#: Operators that have another name on another device, with the name that sites use on all devices. Therefore the
#: exponents of a training on a CPU are valid on a GPU. A compiler's operators are included.
OPERATORS = {
    "batch_norm": "native_batch_norm native_batch_norm_no_training cudnn_batch_norm miopen_batch_norm batch_norm_with_update"
    " batch_norm_no_update",
    "scaled_dot_product_attention": "scaled_dot_product_flash_attention_for_cpu scaled_dot_product_flash_attention"
    " scaled_dot_product_efficient_attention scaled_dot_product_cudnn_attention"
    " scaled_dot_product_fused_attention_overrideable",
    "convolution": "cudnn_convolution cudnn_convolution_transpose miopen_convolution miopen_convolution_transpose"
    " miopen_depthwise_convolution mkldnn_convolution mps_convolution mps_convolution_transpose convolution_overrideable",
    "linear": "mkldnn_linear",
    "rnn": "cudnn_rnn miopen_rnn mkldnn_rnn_layer lstm_mps",
    "grid_sampler_2d": "cudnn_grid_sampler",
    "ctc_loss": "cudnn_ctc_loss miopen_ctc_loss",
    # A CPU multiplies by a mask.
    "mul": "native_dropout fused_dropout",
}
_COMMON = {name: common for common, names in OPERATORS.items() for name in names.split()}
#: Parameters of ``torch.nn.RNNBase``. The CPU computes such a layer in many operators, a GPU in one.
_RECURRENT = re.compile(r"(?:^|\.)(?:weight|bias)_(?:ih|hh|hr)_l\d+(?:_reverse)?$")
#: Operators of these many that compute; the others only hand on.
_INSIDE_RECURRENT = frozenset("tanh relu sigmoid mul add sub rsub unsafe_split rnn".split())


def common_name(operator: str) -> str:
    """Returns the name that sites use for an operator on all devices."""
    return _COMMON.get(operator.lstrip("_"), operator.lstrip("_"))


def short(node) -> str:
    """Returns an operator's name, the same on all devices: ``native_layer_norm`` for ``NativeLayerNormBackward0``."""
    name = _SUFFIX.sub("", node.name()).replace("Legit", "")
    name = re.sub(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9][a-zA-Z])(?=[A-Z])", "_", name).lower()
    return _COMMON.get(name, name)


def _owned(label: str, op: str) -> str:
    """Returns the name of a site at an operator that reads the parameter of that label."""
    layer = _RECURRENT.sub("", label)
    if layer != label:
        return f"{layer}/rnn" if layer else "rnn"
    layer = re.sub(r"\.(weight|bias)$", "", label)
    return layer if op in _PRODUCTS else f"{layer}/{op}"


def _is_recurrent(name: str) -> bool:
    return name == "rnn" or name.endswith("/rnn")


def renamed(name: str) -> str:
    """Returns the name of a site today, given one that was saved when names were those of each device's operators."""
    if "…" in name:  # shortened: the rest is not known
        return name
    end = re.search(r"(?:/part)?(?:\[\d+\])?$", name)
    name, suffix = name[: end.start()], end.group()
    first, *ops = (re.fullmatch(r"(.*?)((?:\.\d+)?)", part).groups() for part in name.split(">"))
    head, output = first
    label, slash, op = head.rpartition("/")
    op = _COMMON.get(op, op)
    if _RECURRENT.search(label if slash else head):
        head, output = _owned(label if slash else head, op), ""
    elif slash:
        head = label if op in _PRODUCTS else f"{label}/{op}"
    else:
        head, output = head + output, ""  # a layer's number is not an output's
    ops = [(_COMMON.get(op, op), output) for op, output in ops]
    if _is_recurrent(head):
        while ops and ops[0][0] in _INSIDE_RECURRENT:
            del ops[0]
    return ">".join([head + output, *map("".join, ops)]) + suffix


def renamed_state(state: dict) -> dict:
    """Returns a state of a training with the names that its sites have today; where two are the same now, the first."""
    if "sites" not in state:
        return state
    sites = json.loads(state["sites"]["sites"])
    if all(renamed(name) == name for name in (*(site["name"] for site in sites), *state["blamed"])):
        return state
    taken = {site["name"] for site in sites}
    for site in sites:
        name = renamed(site["name"])
        if name not in taken:
            taken.add(name)
            site["name"] = name
    blamed = {}
    for name, kinds in state["blamed"].items():
        into = blamed.setdefault(renamed(name), dict.fromkeys(kinds, 0))
        for kind, count in kinds.items():
            into[kind] = into.get(kind, 0) + count
    return {**state, "sites": {**state["sites"], "sites": json.dumps(sites, ensure_ascii=False)}, "blamed": blamed}


class Names:
    """Names of the autograd nodes of one backward pass. `leaf` gives the tensor that a node hands its gradient to, if
    it ends there."""

    def __init__(self, label, found, leaf=lambda node: getattr(node, "variable", None)):
        self._label, self._found, self._leaf = label, found, leaf
        self._known = {}
        self._calls = {}
        self._parts = {}
        self._read = (None, 0)
        #: The first named node that computes, which is the closest to the input, and the suffix of the names in this
        #: pass.
        self.first, self.suffix = None, ""

    def clear(self):
        """Forgets all nodes of the autograd graph and the names of their sites."""
        self._known.clear()
        self._calls.clear()
        self._parts.clear()
        self._read = (None, 0)
        self.first, self.suffix = None, ""

    def nodes(self):
        """Returns all nodes that have been named in this backward pass."""
        return list(self._known)

    def site(self, node):
        """Returns the name of the site at which `node` rounds its incoming gradient, and the number of its calls in
        the graph."""
        if node not in self._known:
            self._walk(node)
        name = self._known[node][0]
        calls = self._calls[name]
        last, read = self._read
        read = read + 1 if last is node else 0
        self._read = (node, read)
        return (name if read == 0 else f"{name}[{read}]") + self.suffix, calls

    def part(self, node):
        """Returns the name of the site at which the result of `node` is rounded before it is added to others, and
        the number of its calls."""
        if node not in self._known:
            self._walk(node)
        name = self._known[node][0]
        made = self._parts[node] = self._parts.get(node, -1) + 1
        return f"{name}/part" + (f"[{made}]" if made else "") + self.suffix, max(1, self._calls[name])

    def feeds_leaf(self, node):
        """Returns True if `node` computes the gradient of a parameter."""
        follow = self._parameter(node)
        return follow is not None

    def look(self, node):
        """Names the sites of `node` and of all nodes that run after it in the backward pass."""
        if node not in self._known:
            self._walk(node)

    def _parameter(self, node):
        """Returns the parameter that a node hands its gradient to, through nodes with one input that only hand on."""
        for _ in range(8):
            leaf = self._leaf(node)
            if leaf is not None:
                return leaf
            if node.name() not in HANDS_ON:
                return None
            nexts = [edge for edge, _ in node.next_functions if edge is not None]
            if len(nexts) != 1:
                return None
            node = nexts[0]
        return None

    def _own(self, node):
        """Returns the label of a node that reads a parameter, or None."""
        if node.name() in HANDS_ON and (len(node.next_functions) < 2 or node.name() == "EnterBackward"):
            return None
        best = None
        for edge, _ in node.next_functions:
            variable = self._parameter(edge) if edge is not None else None
            if variable is not None and isinstance(variable, torch.Tensor):
                label = self._label(variable)
                if best is None or (label.endswith("weight") and not best.endswith("weight")):
                    best = label
        if best is None:
            return None
        return _owned(best, short(node))

    def _walk(self, root):
        """Names the nodes before `root` in post-order: the inputs of a node first, then the node. It is not
        recursive, because graphs may be deep."""
        known, stack = self._known, [(root, False)]
        while stack:
            node, ready = stack.pop()
            if not ready:
                if node in known:
                    continue
                leaf = self._leaf(node)
                if leaf is not None:
                    self._found(leaf)
                    known[node] = ("", _UNREACHED)
                    continue
                if type(node) not in boundaries.ORDINARY:
                    boundaries.enclose(node)
                known[node] = ("", _UNREACHED)
                stack.append((node, True))
                stack.extend((edge, False) for edge, _ in reversed(node.next_functions) if edge is not None and edge not in known)
                continue
            own = self._own(node)
            if own is not None:
                name, far = own, 0
            else:
                name, far = self._after(node)
            known[node] = (name, far)
            if self.first is None and node.name() not in HANDS_ON:
                self.first = node
            self._calls[name] = self._calls.get(name, 0) + (node.name() not in HANDS_ON or node.name() == "ToCopyBackward0")

    def _after(self, node):
        near, far = "input", _UNREACHED - 1
        for edge, output in node.next_functions:
            if edge is not None and edge in self._known:
                name, steps = self._known[edge]
                if name and steps < far:
                    near, far = (name if output == 0 or _is_recurrent(name) else f"{name}.{output}"), steps
        if node.name() in HANDS_ON and node.name() != "ToCopyBackward0":
            return near, far + 1
        op = short(node)
        if _is_recurrent(near) and op in _INSIDE_RECURRENT:
            return near, far + 1
        name = f"{near}>{op}"
        if len(name) > 160:
            name = f"{name[:120]}…{zlib.crc32(name.encode()):08x}"
        return name, far + 1
