//! Operands of a launch on [`AnyDevice`], converted to those of the backend that runs it.

use super::variants::{AnyBuffer, AnyDevice, AnyTable, Variant};
use gradscale_core::{
    backend::{Cast, GradReduce, Launch, MapOperands, OnDevice, Param, Slot, Store},
    scaled::Scaled,
};

/// Conversion of operands to those of the backend `B`. Lists need memory for their converted elements, which the caller
/// lends; a launch has at most one of each.
struct OwnOperands<'b, B: Variant> {
    terms: Option<&'b mut Vec<Scaled<&'b B::Buffer, Slot>>>,
    gradients: Option<&'b mut Vec<&'b B::Buffer>>,
    parameters: Option<&'b mut Vec<Param<'b, B::Buffer>>>,
}

impl<'a: 'b, 'b, B: Variant + 'b> MapOperands<OnDevice<'a, AnyDevice>, OnDevice<'b, B>> for OwnOperands<'b, B> {
    fn read(&mut self, read: &'a AnyBuffer) -> &'b B::Buffer {
        B::own_buffer(read)
    }
    fn write(&mut self, write: &'a mut AnyBuffer) -> &'b mut B::Buffer {
        B::own_buffer_mut(write)
    }
    fn store(&mut self, store: Store<'a, AnyDevice>) -> Store<'b, B> {
        let Store { y, table, from, to, detail, add } = store;
        Store { y: B::own_buffer_mut(y), table: B::own_table(table), from, to, detail, add }
    }
    fn cast(&mut self, Cast { table, from, to, detail }: Cast<'a, AnyDevice>) -> Cast<'b, B> {
        Cast { table: B::own_table(table), from, to, detail }
    }
    fn terms(&mut self, terms: &'a [Scaled<&'a AnyBuffer, Slot>]) -> &'b [Scaled<&'b B::Buffer, Slot>] {
        let Some(own) = self.terms.take() else { return &[] };
        own.extend(terms.iter().map(|term| term.map(B::own_buffer)));
        own
    }
    fn gradients(&mut self, gradients: &'a [&'a AnyBuffer]) -> &'b [&'b B::Buffer] {
        let Some(own) = self.gradients.take() else { return &[] };
        own.extend(gradients.iter().map(|gradient| B::own_buffer(gradient)));
        own
    }
    fn parameters(&mut self, parameters: &'a mut [Param<'a, AnyBuffer>]) -> &'b mut [Param<'b, B::Buffer>] {
        let Some(own) = self.parameters.take() else { return &mut [] };
        own.extend(parameters.iter_mut().map(|Param { len, master, grad, state: [first, second], half }| Param {
            len: *len,
            master: B::own_buffer_mut(master),
            grad: B::own_buffer(grad),
            state: [first.as_deref_mut().map(B::own_buffer_mut), second.as_deref_mut().map(B::own_buffer_mut)],
            half: half.as_deref_mut().map(B::own_buffer_mut),
        }));
        own
    }
    fn table(&mut self, table: &'a AnyTable) -> &'b B::Table {
        B::own_table(table)
    }
}

/// Enqueues a launch on the backend that runs it.
pub(super) fn launch_on<B: Variant>(device: &B, launch: Launch<OnDevice<'_, AnyDevice>>) -> Result<(), B::Error> {
    let (mut terms, mut gradients, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
    device.launch(launch.map(&mut OwnOperands::<B> {
        terms: Some(&mut terms),
        gradients: Some(&mut gradients),
        parameters: Some(&mut parameters),
    }))
}

/// Converts one phase of a gradient reduction.
pub(super) fn own_reduction<B: Variant>(part: GradReduce<'_, AnyBuffer>) -> GradReduce<'_, B::Buffer> {
    match part {
        GradReduce::Init { len, parts, exact } => GradReduce::Init { len, parts, exact },
        GradReduce::Accumulate { at, len, values, exponent } => {
            GradReduce::Accumulate { at, len, values: B::own_buffer(values), exponent }
        }
        GradReduce::AllReduceMean => GradReduce::AllReduceMean,
        GradReduce::Read { at, len, values, exponent } => {
            GradReduce::Read { at, len, values: B::own_buffer_mut(values), exponent }
        }
    }
}
