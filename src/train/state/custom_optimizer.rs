//! Updates by a custom optimizer rule, which is traced once for each weight and compiled like a network, in f32.

use crate::{
    Error, Layers, TraceError,
    error::TraceErrorKind,
    graph::{
        BufferId, CompileOptions, DistributedPlan, Fixed, Operation, ParamTensor, ParamUpdate, Program, Purpose,
        STATES, StoreSpec, Tape, Trace, Value, compile,
    },
    optim::{CustomOptimizer, Optimizer, UpdateInput, UpdateOutput},
    train::{Trainer, elements},
};
use gradscale_core::{
    amp::{AmpPolicy, Level, Precision},
    backend::{Backend, DType, Data, Slot, UpdateGuard},
    ops::{Dim, Optimizer as Descriptor, Strided},
};
use std::sync::Arc;

impl<B: Backend> Trainer<B> {
    /// Returns the operations that update one weight by the custom rule. The new weight and states replace the old ones
    /// in the last operation, which does nothing if the guard has found a gradient that is not finite.
    pub(in crate::train) fn custom_update(
        &mut self, id: usize, clipping: Option<Descriptor>, norm: Option<BufferId>, guard: &UpdateGuard,
    ) -> Result<Vec<Operation>, Error<B::Error>> {
        let Some(rule) = self.optimizer.custom_rule().cloned() else { return Ok(Vec::new()) };
        let (group, len, states) = (self.parameters.groups[id], self.parameters.len(id), rule.states());
        let numbers = rule.numbers(self.steps[group]).len();
        let trace = self.custom_trace(&*rule, id, numbers)?;
        // Inputs of the program, in the order in which they are traced.
        let gradient = clipping.is_none().then_some(Fixed::tensor(id, ParamTensor::Gradient));
        let mut inputs = vec![Some(Fixed::tensor(id, ParamTensor::Master)), gradient];
        inputs.extend(STATES.into_iter().take(states).map(|part| Some(Fixed::tensor(id, part))));
        // Scalars are stored by kind and then by group: first the learning rates, then number 0 of all groups, then
        // number 1.
        let groups = self.optimizer.group_count();
        inputs.extend((0..=numbers).map(|number| Some(BufferId::HostScalar(number * groups + group))));
        let program = self.custom_program(&trace, &inputs)?;

        let mut operations = Vec::new();
        if let (Some(p), Some(&clipped)) = (clipping, program.inputs.get(1)) {
            let zeros = Strided::new(&[Dim { len: elements(len), x: 0, y: 1 }], 0, 0).map_err(Error::Optimizer)?;
            let y = StoreSpec::passthrough(Value::f32(clipped, len), Slot::ONE);
            operations.push(Operation::Copy { p: zeros, x: self.parameters.fixed().scalar_zero(), y });
            let parameters = vec![replaced(elements(len), clipped, Fixed::tensor(id, ParamTensor::Gradient))];
            operations.push(Operation::Optimize { p, table: (), guard: guard.clone(), norm, parameters });
        }
        operations.extend(program.launches.iter().map(|launch| launch.operation.clone()));
        let mut parameters: Vec<ParamUpdate> = [ParamTensor::Master]
            .into_iter()
            .chain(STATES)
            .zip(&program.aux_outputs)
            .map(|(part, new)| replaced(new.value.elements(), Fixed::tensor(id, part), new.value.buf))
            .collect();
        let half = Fixed::tensor(id, ParamTensor::Half);
        parameters[0].half = Some(half).filter(|&half| self.exec.has(half));
        let p = Optimizer::replacing();
        operations.push(Operation::Optimize { p, table: (), guard: guard.clone(), norm: None, parameters });
        Ok(operations)
    }

    /// Traces the rule for one weight. Its results are named outputs of the trace: the new weight first, then the new
    /// states.
    fn custom_trace(&self, rule: &dyn CustomOptimizer, id: usize, numbers: usize) -> Result<Arc<Trace>, TraceError> {
        // The rule can use no parameter except the weight that it receives.
        let tape = Tape::new(false, self.parameters.owner, 0);
        let shape = self.parameters.shape(id);
        let mut inputs = 0;
        let mut input = |shape| {
            inputs += 1;
            tape.input(inputs - 1, shape, DType::F32)
        };
        let (weight, gradient) = (input(shape), input(shape));
        let states: Vec<_> = (0..rule.states()).map(|state| input(rule.state_shape(state, shape))).collect();
        let lr = input([1].into());
        let numbers = (0..numbers).map(|_| input([1].into())).collect();
        let (_, decay) = self.optimizer.rates(self.parameters.groups[id]);
        let UpdateOutput { weight: new, states: kept } =
            rule.update(UpdateInput { weight, gradient, states, lr, numbers, decay });
        let name = &self.parameters.all[id].name;
        let refused = |words: String| TraceError::new(name, TraceErrorKind::Range(format!("its update {words}")));
        if kept.len() != rule.states() {
            return Err(refused(format!(
                "returns {} state tensors, but its states() is {}",
                kept.len(),
                rule.states()
            )));
        }
        let output = new.id();
        for (i, var) in [new].into_iter().chain(kept).enumerate() {
            let (what, expected) = match i.checked_sub(1) {
                Some(state) => ("state", rule.state_shape(state, shape)),
                None => ("parameter", shape),
            };
            if var.shape() != expected {
                let words = || refused(format!("is {}, but the {what} is {expected}", var.shape()));
                return Err(tape.error().unwrap_or_else(words));
            }
            let _ = var.output(&i.to_string());
        }
        tape.finish(output).map(Arc::new)
    }

    /// Compiles the trace of a custom rule in f32, and assigns memory to it.
    fn custom_program(
        &mut self, trace: &Arc<Trace>, preassigned_inputs: &[Option<BufferId>],
    ) -> Result<Program, Error<B::Error>> {
        let mut shared = CompileOptions {
            policy: &AmpPolicy::new(Level::O0),
            layers: &Layers::default(),
            weight_gradients: Precision::Single,
            single_gradients: false,
            parameters: &self.parameters.infos,
            sites: &mut self.sites,
            constants: &mut self.exec.constants,
            prefix: "",
            retain_buffers: false,
            each_call: None,
            distributed: DistributedPlan::default(),
            fuses_attention: &|_| false,
            preassigned_inputs,
        };
        let mut program = compile(trace, Purpose::Update, &mut shared)?;
        self.exec.bind_memory(&mut program).map_err(Error::Device)?;
        Ok(program)
    }

    /// Uploads the learning rates of the coming step, and the numbers that the custom rule computes from step counts.
    pub(in crate::train) fn write_numbers(&mut self) -> Result<(), Error<B::Error>> {
        let Some(rule) = self.optimizer.custom_rule() else { return Ok(()) };
        let of_groups: Vec<Vec<f32>> = self.steps.iter().map(|&steps| rule.numbers(steps)).collect();
        let least = of_groups.iter().map(Vec::len).min().unwrap_or(0);
        let rates = self.optimizer.rates_of(&self.hyperparameters).iter().copied();
        let numbers: Vec<f32> =
            rates.chain((0..least).flat_map(|i| of_groups.iter().map(move |numbers| numbers[i]))).collect();
        if self.numbers.len() > numbers.len() {
            let (before, now) = (self.numbers.len(), numbers.len());
            let words = format!(
                "the rule returned fewer numbers than in an earlier step: {now}, not {before}, with the learning rates"
            );
            return Err(TraceError::new("optimizer", TraceErrorKind::Range(words)).into());
        }
        for (i, &number) in numbers.iter().enumerate() {
            // Most numbers do not change between steps.
            if self.numbers.get(i).map(|known| known.to_bits()) != Some(number.to_bits()) {
                self.exec.allocate(BufferId::HostScalar(i), DType::F32, 1).map_err(Error::Device)?;
                self.exec.write(BufferId::HostScalar(i), Data::F32(&[number])).map_err(Error::Device)?;
            }
        }
        self.numbers = numbers;
        Ok(())
    }
}

/// Returns the buffers of a launch that replaces or clips a tensor.
const fn replaced(len: u32, master: BufferId, grad: BufferId) -> ParamUpdate {
    ParamUpdate { len, master, grad, state: [None; 2], half: None }
}
