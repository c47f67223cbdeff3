//! How many sums are formed at once: see parallel_reduce.wgsl.

use crate::launch::WORKGROUP_SIZE;

/// Terms of an invocation, at least, before a second workgroup helps.
const MIN_TERMS_PER_THREAD: u32 = 32;
/// Workgroups beyond which there is no second one for the same results.
const MAX_WORKGROUPS: u32 = 1024;
/// Invocations that add up the parts of a result, at most.
const MAX_FINAL_THREADS: u32 = 16;

/// A division of work, by the shape alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParallelReduce {
    results: u32,
    len: u32,
    threads: u32,
    parts: u32,
    contiguous_terms: bool,
}

impl ParallelReduce {
    /// So many results of `len` terms each; `beside` results lie side by side in memory, or it is 1 and the terms of
    /// each result do.
    pub fn new(results: u32, len: u32, beside: u32) -> Self {
        let contiguous_terms = beside <= 1;
        let threads = if contiguous_terms {
            // Eight terms for each before a second one helps.
            len.div_ceil(8).clamp(1, WORKGROUP_SIZE).next_power_of_two()
        } else {
            (WORKGROUP_SIZE / beside.min(WORKGROUP_SIZE).next_power_of_two())
                .min(len.clamp(1, WORKGROUP_SIZE).next_power_of_two())
        };
        let workgroups_per_pass = results.div_ceil(WORKGROUP_SIZE / threads).max(1);
        let parts = (len / (threads * MIN_TERMS_PER_THREAD)).min(MAX_WORKGROUPS / workgroups_per_pass).max(1);
        Self { results, len, threads, parts, contiguous_terms }
    }

    /// The second half: for each result, its parts.
    pub fn final_pass(&self) -> Self {
        let threads = self.parts.min(MAX_FINAL_THREADS).next_power_of_two();
        Self { results: self.results, len: self.parts, threads, parts: 1, contiguous_terms: false }
    }

    /// The members of `Division`.
    pub fn params(&self) -> [u32; 4] {
        [self.results, self.len, self.threads, self.parts]
    }

    /// The value of `ALONG`.
    pub fn contiguity_constant(&self) -> (&'static str, u32) {
        ("CONTIGUOUS_TERMS", self.contiguous_terms.into())
    }

    /// Workgroups.
    pub fn workgroups(&self) -> u32 {
        self.results.div_ceil(WORKGROUP_SIZE / self.threads) * self.parts
    }

    /// Bytes of all parts, for totals of so many.
    pub fn bytes(&self, total: u64) -> u64 {
        total * u64::from(self.results) * u64::from(self.parts)
    }
}
