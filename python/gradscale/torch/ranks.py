"""Agreement of several processes on a step: taken, repeated or skipped."""

import torch
import torch.distributed as dist

#: Result of an attempt at a step on one rank. FINITE: its gradients are finite. REPEAT: they are not, and its own sites
#: would repeat the batch. ELSEWHERE: they are not, but its own sites have seen no failure. LOST: its own sites have
#: seen a failure that no exponent cures. NOTHING: it had no backward pass.
FINITE, REPEAT, ELSEWHERE, LOST, NOTHING = range(5)


def several():
    """Returns True if there are other ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank():
    """Returns the rank of this process; 0 if there are no others."""
    return dist.get_rank() if several() else 0


def all_gather(value):
    """Returns the values of all ranks, by rank. All ranks have to call this."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def sharded(gradient):
    """Returns True if each rank has a part of the gradient, as with ``fully_shard``."""
    # Tests for a DTensor without the import, which takes a second.
    return hasattr(gradient, "device_mesh")


def gathered(model):
    """Returns names and parameters as ``fully_shard`` gathers them for the operators of a layer. They are other
    tensors than the model's parameters, and accessible only through private attributes, if this version has these."""
    for module in model.modules():
        state = getattr(module, "_get_fsdp_state", None)
        for group in getattr(state(), "_fsdp_param_groups", ()) if state else ():
            for part in getattr(group, "fsdp_params", ()):
                name, whole = getattr(part, "_param_fqn", None), getattr(part, "_unsharded_param", None)
                if name and whole is not None:
                    yield name, whole


def anywhere(found, mesh):
    """Makes a flag that of all ranks that share a gradient: one that steps while another does not has other weights."""
    for dimension in range(mesh.ndim):
        dist.all_reduce(found, dist.ReduceOp.MAX, mesh.get_group(dimension))


def agreed(code, device):
    """Returns True if all ranks repeat the batch. All of them have to call this, each with the result of its attempt."""
    device = "cpu" if dist.get_backend() == "gloo" else device
    mine = torch.tensor([code], dtype=torch.int32, device=device)
    all_ = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_, mine)
    codes = [int(one) for one in all_]
    if NOTHING in codes:
        raise RuntimeError(
            f"on {_ranks(codes, NOTHING)} the closure of step() called no backward that begins at a scaled loss; no rank has"
            " stepped"
        )
    if FINITE in codes and len(set(codes)) > 1:
        raise RuntimeError(
            f"gradients are finite on {_ranks(codes, FINITE)} and not finite on the other ranks; no rank has stepped. step()"
            " needs gradients that are averaged over all ranks, as DistributedDataParallel does; if each rank trains alone,"
            " use guard() and update()"
        )
    return REPEAT in codes and LOST not in codes


def _ranks(codes, code):
    which = [str(rank) for rank, one in enumerate(codes) if one == code]
    return ("rank " if len(which) == 1 else "ranks ") + ", ".join(which)
