//! Sums of terms from several slots.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::{KernelLaunch, strided_workgroups},
    memory::word_of,
};
use gradscale_core::{
    backend::{Buffer, DType, Slot, Store},
    scaled::Scaled,
};

/// Terms that a kernel takes at once: with a store's own four buffers, eight.
const TERMS: usize = 4;

impl Wgpu {
    pub(crate) fn run_sum(&self, len: u32, terms: &[Scaled<&Memory, Slot>], y: Store<'_, Self>) -> Result<(), Error> {
        let y = Store { from: y.to, ..y };
        if len == 0 {
            return Ok(());
        }
        if terms.len() <= TERMS {
            return self.add_up(len, terms, &y);
        }
        // The sum so far is f32, in turn in two buffers, and has the exponent of the result.
        let mut sums = [self.new_memory(DType::F32, len as usize)?, self.new_memory(DType::F32, len as usize)?];
        let (first, mut rest) = terms.split_at(TERMS);
        self.add_up(len, first, &Store::keep(y.to, y.table, &mut sums[0]))?;
        while rest.len() >= TERMS {
            let (next, behind) = rest.split_at(TERMS - 1);
            rest = behind;
            let [sum, other] = &mut sums;
            let list: Vec<_> = [Scaled::new(&*sum, y.to)].into_iter().chain(next.iter().copied()).collect();
            self.add_up(len, &list, &Store::keep(y.to, y.table, other))?;
            sums.swap(0, 1);
        }
        let list: Vec<_> = [Scaled::new(&sums[0], y.to)].into_iter().chain(rest.iter().copied()).collect();
        self.add_up(len, &list, &y)
    }

    fn add_up(&self, len: u32, terms: &[Scaled<&Memory, Slot>], y: &Store<'_, Self>) -> Result<(), Error> {
        let slot = |i: usize| terms.get(i).map_or(0, |term| u32::from(term.alpha.0));
        let mut call = KernelLaunch::new(&kernel::SUM).constant("TERMS", word_of(terms.len()));
        let data = |i: usize| terms.get(i).unwrap_or(&terms[0]).data;
        call = call.params([0, 1, 2, 3].map(slot)).params([0, 1, 2, 3].map(|i| data(i).dtype().code())).params([len]);
        for i in 0..TERMS {
            call = call.operand(data(i));
        }
        self.launch(call.store(y), strided_workgroups(len.div_ceil(8)))
    }
}
