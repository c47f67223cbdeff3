"""Steps: their rows, updates, repeats, and the content of a checkpoint."""

from __future__ import annotations

import contextlib
import types
from typing import Any, Callable, Mapping, TypeVar

import numpy as np
import torch

from .. import _gradscale
from . import graph, ranks
from .stores import EXPONENT


_Loss = TypeVar("_Loss")


class TooManySkipsError(RuntimeError):
    """Error of a training that has skipped so many consecutive steps that it will not recover."""


#: Steps of one optimizer without an update after which training ends with an error: more than the steps of a discriminator for
#: one of a generator, and few enough to be seen in the first minute.
MAX_STEPS_WITHOUT_UPDATE = 100
#: Updates that check for weights trained without scales. The check takes time, and such weights appear early.
CHECKED_UPDATES = frozenset((1, 2, 3, 10, 100))


#: Remedy for each kind of `Sites.loss_scale_warning`.
_LOSS_SCALE_REMEDIES = {
    "collapsed": "The method 'gs' is not moved by such steps, and its report() names the layer at which they began",
    "flushes": "Start with a larger loss scale (init=), or use the method 'gs', which has a scale for each gradient",
}


class _NotFinite(Exception):
    """Ends a step whose closure has computed gradients that are not finite."""


@contextlib.contextmanager
def _found_inf(optimizer, found):
    """Context in which a fused optimizer skips its step on the device if `found` is set."""
    optimizer.grad_scale, optimizer.found_inf = None, found
    try:
        yield
    finally:
        del optimizer.grad_scale, optimizer.found_inf


class Steps:
    """Base class of :class:`GradientScaling` with the part that ends steps."""

    def _not_finite(self, parameters):
        """Returns, on the device, whether a gradient of these parameters is not finite; None without gradients."""
        gradients, meshes = {}, []
        for parameter in parameters:
            if parameter.grad is not None:
                gradient = parameter.grad
                if ranks.sharded(gradient):
                    meshes += [gradient.device_mesh] * (gradient.device_mesh not in meshes)
                    gradient = gradient.to_local()
                gradient = gradient._values() if gradient.is_sparse else gradient
                gradients.setdefault((gradient.device, gradient.dtype), []).append(gradient)
        found = None
        for (device, _), some in gradients.items():
            flag = torch.zeros((), device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(some, flag, torch.ones((), device=device))
            found = flag if found is None else torch.maximum(found, flag.to(found.device))
        for mesh in meshes:
            ranks.anywhere(found, mesh)
        if found is not None:
            self._found = found if self._found is None else torch.maximum(self._found, found.to(self._found.device))
        return found

    def guard(self, optimizer: torch.optim.Optimizer, *, update: bool = False) -> Callable[[], None]:
        """Lets `optimizer` leave out steps whose gradients are not finite. Fused optimizers do so on the device; others
        have the host read one number first, as ``torch.amp.GradScaler`` does. Returns a function that ends it.

        With `update`, each step of the optimizer ends with :meth:`update`. That is for loops in the code of a library, where
        no line can be added after the step. Of several optimizers that step one after another, only the last gets it.
        """
        if any(known is optimizer for known, _ in self._optimizers):
            raise ValueError("this optimizer is guarded already")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("LBFGS computes gradients several times a step, and such a step cannot be skipped once it has begun: do not guard it")
        original, own = optimizer.step, optimizer.__dict__.get("step")
        entry, scaling = (optimizer, original), self

        def step(optimizer, *args, **kwargs):
            if entry not in scaling._optimizers:  # ended, but still wrapped by other code
                return original(*args, **kwargs)
            result = scaling._step_guarded(optimizer, original, *args, **kwargs)
            if update:
                scaling.update()
            return result

        optimizer.step = types.MethodType(step, optimizer)
        self._optimizers.append(entry)

        def end():
            if entry in self._optimizers:
                self._optimizers.remove(entry)
            if getattr(optimizer.step, "__func__", None) is step:
                del optimizer.step
                if own is not None:
                    optimizer.step = own

        self._undo.append(end)
        return end

    def _step_guarded(self, optimizer, step, *args, found=None, **kwargs):
        """Calls `step` of an optimizer, unless a gradient is not finite."""
        steps = self._guarded[id(optimizer)] = self._guarded.get(id(optimizer), 0) + 1
        if steps > MAX_STEPS_WITHOUT_UPDATE:
            raise RuntimeError(
                f"{type(optimizer).__name__}.step() was called {steps} times without update() of the gradient scaling: call update()"
                " after each step, also before a continue"
            )
        closure = args[0] if args else kwargs.get("closure")
        if closure is not None:
            return self._with_closure(optimizer, step, closure, found)
        if found is None:
            found = self._found_of(optimizer)
        if found is None:
            return step(*args, **kwargs)
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            with _found_inf(optimizer, found):
                return step(*args, **kwargs)
        return None if found.item() else step(*args, **kwargs)

    def _found_of(self, optimizer):
        return self._not_finite(p for group in optimizer.param_groups for p in group["params"])

    def _with_closure(self, optimizer, step, closure, found):
        """Steps an optimizer that calls a closure, and looks at the gradients that the closure has computed."""
        losses = []
        fused = getattr(optimizer, "_step_supports_amp_scaling", False)

        def looked():
            if losses:
                raise RuntimeError(
                    f"{type(optimizer).__name__} computes gradients more than once a step, and such a step cannot be skipped once it has"
                    " begun: do not guard it"
                )
            losses.append(closure())
            flag = self._found_of(optimizer)
            if flag is not None and fused:
                optimizer.found_inf = flag
            elif flag is not None and flag.item():
                raise _NotFinite
            return losses[0]

        try:
            if fused:
                with _found_inf(optimizer, found):
                    return step(looked)
            return step(looked)
        except _NotFinite:
            return losses[0]

    def update(self) -> _gradscale.Outcome | None:
        """Ends a step: takes its rows, and decides the exponents of the next. Returns how it ended; where rows are read
        late, how the step before ended. Warns once, if gradients were computed of which none was scaled."""
        self._guarded.clear()
        if self._micro == 0:
            if not self._discarded:
                self._explain()
            # Gradients that no site has seen do not affect the next step.
            self._found = None
        self._ran = self._discarded = False
        if self._micro == 0:
            return self.outcome
        self._updates += 1
        if self._updates in CHECKED_UPDATES:
            self._look_for_bypassed()
        flight = self._collect()
        if self._deferred:
            flight, self._flight = self._flight, flight
        if flight is not None:
            self.outcome = self._finish(flight, repeatable=False)
        self._refresh()
        return self.outcome

    def _explain(self):
        """Warns that nothing was scaled, and why, if there are gradients."""
        if self._unpickled and not self._models:
            self._warn("this training was unpickled and scales no model yet: call its attach(model)")
        for _, (reference, forward) in self._models.items():
            model = reference()
            if model is None or all(p.grad is None for p in model.parameters()):
                continue
            name = type(model).__name__
            if self._ran:
                self._warn(
                    f"{name} computed gradients, but none was scaled: return tensors, or tuples, lists, dictionaries or"
                    " dataclasses of tensors, and compute the loss from these"
                )
            elif model.__dict__.get("forward") is not forward():
                self._warn(f"{name}.forward was replaced after attach(), so no gradient was scaled: call attach() after the replacement")
            else:
                self._warn(
                    f"{name} has gradients, but its forward was not called, so none was scaled: call the model itself, or call"
                    " backward(loss) of a GradientScaling under torch.autocast"
                )

    def _look_for_bypassed(self):
        """Warns about weights whose gradients did not come from a scaled result."""
        if self._compiled:
            return
        for number, model in self._live_models():
            names = [name for name, p in model.named_parameters() if p.grad is not None and id(p) not in self._hooks]
            if names:
                self._warn(
                    f"gradients of {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} were not scaled: parts of"
                    f" {type(model).__name__} were called outside its forward"
                )

    def step(self, closure: Callable[[], _Loss], *optimizers: torch.optim.Optimizer) -> _Loss:
        """Runs `closure`, which clears gradients, computes a loss, calls backward and returns the loss; then steps the
        `optimizers`, or those that are guarded. If something overflowed at a site, nothing has changed yet, and the closure
        runs again, with the same random numbers and running statistics: every site then decides from the batch's own
        values. So no batch is lost whose gradients f32 can hold. Waits for the device.

        With several ranks, whose gradients ``DistributedDataParallel`` averages, all of them call this, and all repeat where
        one has to; they tell one another a number at each attempt."""
        if self._flight is not None:
            flight, self._flight = self._flight, None
            self._finish(flight, repeatable=False)
            self._refresh()
        pairs = [(one, self._original(one)) for one in optimizers] or list(self._optimizers)
        if not pairs:
            raise ValueError("which optimizer is to step? Pass it to step(), or call guard() on it")
        device = next((p.device for one, _ in pairs for group in one.param_groups for p in group["params"]), "cpu")
        before = self._before()
        while True:
            self._born, self._results = [], []
            try:
                loss = closure()
            finally:
                born, self._born = self._born, None
            if self._micro == 0:
                if ranks.several():
                    ranks.agreed(ranks.NOTHING, device)
                raise RuntimeError("the closure of step() called no backward that begins at a scaled loss: compute the loss with the attached model")
            found = self._not_finite(p for one, _ in pairs for group in one.param_groups for p in group["params"])
            repeat = self._attempted(self._collect(), device, born)
            self._refresh()
            if not repeat:
                break
            self._again(before)
        if self.outcome.stepped:
            for optimizer, step in pairs:
                self._step_guarded(optimizer, step, found=found)
            self._found = None
        else:
            self._again(before)
        return loss

    def _attempted(self, flight, device, born):
        """Decides from the rows of an attempt, and returns whether it is repeated. Values that were not finite
        before anything was scaled cannot be cured by a scale."""
        repeatable, failed = True, self._failed
        rows, found = self._stores.read(flight[0])
        arrived = any(map(bool, born))
        # What is not finite in a loss of finite results has come about outside of the model.
        outside = arrived and all(map(bool, self._results))
        suspected = not outside and self._suspects_activations(rows, found, flight[1])
        if arrived and not self._activation_overflowed(rows, flight[1]):
            failed = None
        if ranks.several():
            ours = ranks.REPEAT if suspected else self._alone(flight, failed)
            repeatable = ranks.agreed(ours, device) or ours == ranks.FINITE
            if not repeatable:
                failed = None
            elif ours == ranks.ELSEWHERE:
                # Nothing overflowed on this rank, so its values do not contradict the exponents in force.
                self.repeats += 1
                self._record("repeat", *flight[:2])
                return True
        if suspected and repeatable:
            # With exponents for activations this batch shows whether one of them has overflowed.
            self._begin_forward()
            self.repeats += 1
            self._record("repeat", *flight[:2], activation=("(forward pass)", 0))
            return True
        self.outcome = self._finish(flight, repeatable, failed)
        return self.outcome.kind == "repeat"

    def _alone(self, flight, failed):
        """Returns how this rank's attempt would end if there were no other ranks."""
        (rows, found), order, micro = self._stores.read(flight[0]), *flight[1:]
        if not found:
            return ranks.FINITE
        trial = _gradscale.Sites(self.method, deferred=self._deferred)
        trial.load_state_dict(self._sites.state_dict())
        outcome = trial.finish(rows, found, order=order, repeatable=True, failed_attempts=failed, micro_batches=micro)
        if outcome.kind == "repeat":
            return ranks.REPEAT
        return ranks.ELSEWHERE if outcome.site_name is None else ranks.LOST

    def _record(self, kind, seen, order, activation=None):
        """Writes an attempt to the trace. Activations have no rows there, but the one that overflowed first is named."""
        if self._trace is None:
            return
        rows, _ = self._stores.read(seen)
        if activation is None and kind != "stepped" and self._activation_overflowed(rows, order):
            slot, _ = self._first_non_finite(rows, order)
            activation = self._sites.names[slot], int(rows[slot, EXPONENT].view(np.int32))
        gradients = [slot for slot in order if slot not in self._forward_slots]
        self._trace.write(self.steps + self.skipped + 1, kind, self._sites, rows, gradients, activation)

    def _original(self, optimizer):
        return next((step for known, step in self._optimizers if known is optimizer), optimizer.step)

    def _before(self):
        """Returns copies of the state that a forward pass changes: buffers and states of random generators."""
        buffers = [(b, b.clone()) for _, module in self._live_models() for b in module.buffers()]
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
        return buffers, torch.get_rng_state(), cuda

    @staticmethod
    def _again(before):
        buffers, state, cuda = before
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        torch.set_rng_state(state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)

    def _collect(self):
        """Takes the rows of a step, which the host need not wait for yet."""
        found = self._found
        if found is None:
            parameters = [p for p in (reference() for reference, _ in self._hooks.values()) if p is not None]
            if self._compiled:  # whose gradients need no hook
                parameters += [p for _, model in self._live_models() for p in model.parameters() if id(p) not in self._hooks]
            found = self._not_finite(parameters)
        flight = self._stores.collect(len(self._sites), found), self._order, self._micro
        self._clear_step()
        return flight

    def _clear_step(self):
        """Begins a step by resetting its sites, passes and flags."""
        self._order, self._stored = [], set()
        self._micro, self._task, self._found, self._passes = 0, None, None, {}
        self._guarded.clear()
        self._may_run_again = False
        self._epoch += 1
        self._names.clear()

    def _discard_step(self):
        """Discards the stores of the current step, as if its backward passes had not run."""
        self._discarded = self._discarded or self._micro > 0
        if self._stores is not None:
            self._stores.collect(len(self._sites), None)
        self._flight = None
        self._clear_step()

    def _finish(self, flight, repeatable, failed=0):
        """Reads the rows of a step and lets the sites decide."""
        seen, order, micro = flight
        rows, found = self._stores.read(seen)
        new = len(self._sites) - len(rows)
        if new:
            rows = np.concatenate([rows, np.zeros((new, rows.shape[1]), np.uint32)])
        suspected = not repeatable and self._suspects_activations(rows, found, order)
        outcome = self._sites.finish(rows, found, order=order, repeatable=repeatable, failed_attempts=failed, micro_batches=micro)
        self._record(outcome.kind, seen, order)
        if suspected:
            self._begin_forward()
        else:
            self._end_forward_step(outcome, rows)
        if not outcome.stepped and self._compiled and not self.steps and self._avx512():
            self._warn(
                "no step of the compiled model was finite. If steps are finite without torch.compile, the cause is Inductor of torch 2.15,"
                " which misreads halves of mixed layouts with AVX-512: set ATEN_CPU_CAPABILITY=avx2, or use backend='aot_eager'",
                kind="inductor",
            )
        self._warn_of_loss_scale()
        self._failed = self._failed + 1 if outcome.kind == "repeat" else 0
        if not outcome.stepped:
            blamed = self._blamed.setdefault(outcome.site_name or "(no site)", {"overflow": 0, "infinite": 0, "nan": 0})
            blamed[outcome.non_finite or "infinite"] += 1
        if outcome.kind == "repeat":
            self.repeats += 1
        elif outcome.stepped:
            self.steps += 1
            self._in_a_row = 0
        else:
            self.skipped += 1
            self._in_a_row += 1
            if self._limit and self._in_a_row >= self._limit:
                raise TooManySkipsError(f"{self._in_a_row} steps in a row were skipped; the last was {outcome}")
        return outcome

    def _warn_of_loss_scale(self):
        """Warns once about a dynamic loss scale that has collapsed or that flushes gradients; other methods have none."""
        warning = self._sites.loss_scale_warning()
        if warning is not None:
            kind, sentence = warning
            self._warn(f"{sentence}. {_LOSS_SCALE_REMEDIES[kind]}", kind="loss scale")

    def _avx512(self):
        """Returns True if compiled graphs may run kernels for AVX-512."""
        return self._device.type == "cpu" and "AVX512" in torch.backends.cpu.get_cpu_capability()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, from which a training goes on with the same bits: names, exponents and
        memory of all sites, and rows in transfer."""
        if self._loaded is not None:  # No gradient has come since.
            return dict(self._loaded)
        state = {"version": 1, "steps": self.steps, "repeats": self.repeats, "skipped": self.skipped, "in_a_row": self._in_a_row}
        state["blamed"] = {name: dict(kinds) for name, kinds in self._blamed.items()}
        if self._sites is not None:
            state["sites"] = dict(self._sites.state_dict())
            state["shared"] = sorted(self._shared)
        if self._forward_slots:
            state["forward"] = {
                "slots": list(self._forward_slots),
                "scales": self._scales_forward,
                "unneeded": self._unneeded,
                "needed": self._needed,
            }
        if self._flight is not None:
            seen, order, micro = self._flight
            rows, found = self._stores.read(seen)
            state["flight"] = {"rows": rows.tobytes(), "found": found, "order": order, "micro": micro}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state that ``state_dict`` returned, before the first step or in the middle of a training of
        the same network. Between ``backward()`` and ``update()`` the stores of the current step are discarded, so
        that ``update()`` decides nothing."""
        if state.get("version") != 1:
            raise ValueError("not a state of gradscale.torch, or one of a later version: update gradscale")
        state = graph.renamed_state(state)
        self._discard_step()
        self._loaded = None
        self.steps, self.repeats, self.skipped = state["steps"], state["repeats"], state["skipped"]
        self._in_a_row, self._blamed = state["in_a_row"], {name: dict(kinds) for name, kinds in state["blamed"].items()}
        if "sites" not in state:
            self._sites = self._stores = None
            self._slots, self._shared, self._formats = {}, set(), []
            self._load_forward(None)
            return
        if self._sites is None:
            # The device of gradients is known only at the first one.
            self._loaded = state
            self._load_forward(state.get("forward"))
            return
        self._sites.load_state_dict(state["sites"])
        self._slots = {name: slot for slot, name in enumerate(self._sites.names)}
        self._shared, self._formats = set(state["shared"]), []
        self._deferred = self._sites.deferred
        self._load_forward(state.get("forward"))
        if "flight" in state:
            flight = state["flight"]
            rows = np.frombuffer(flight["rows"], np.uint32).reshape(len(self._sites), -1)
            self._flight = (rows, flight["found"]), flight["order"], flight["micro"]
        self._refresh()
