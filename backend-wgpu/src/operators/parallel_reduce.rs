//! How many sums are formed at once: see parallel_reduce.wgsl.

use crate::launch::GROUP;

/// Terms of an invocation, at least, before a second workgroup helps.
const LEAST: u32 = 32;
/// Workgroups beyond which there is no second one for the same results.
const MANY: u32 = 1024;
/// Invocations that add up the parts of a result, at most.
const THREADS: u32 = 16;

/// A division of work, by the shape alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    results: u32,
    len: u32,
    threads: u32,
    parts: u32,
    along: bool,
}

impl Split {
    /// So many results of `len` terms each; `beside` results lie side by side in memory, or it is 1 and the terms of
    /// each result do.
    pub fn new(results: u32, len: u32, beside: u32) -> Self {
        let along = beside <= 1;
        let threads = if along {
            // Eight terms for each before a second one helps.
            len.div_ceil(8).clamp(1, GROUP).next_power_of_two()
        } else {
            (GROUP / beside.min(GROUP).next_power_of_two()).min(len.clamp(1, GROUP).next_power_of_two())
        };
        let sides = results.div_ceil(GROUP / threads).max(1);
        let parts = (len / (threads * LEAST)).min(MANY / sides).max(1);
        Self { results, len, threads, parts, along }
    }

    /// The second half: for each result, its parts.
    pub fn of_parts(&self) -> Self {
        let threads = self.parts.min(THREADS).next_power_of_two();
        Self { results: self.results, len: self.parts, threads, parts: 1, along: false }
    }

    /// The members of `Division`.
    pub fn params(&self) -> [u32; 4] {
        [self.results, self.len, self.threads, self.parts]
    }

    /// The value of `ALONG`.
    pub fn along(&self) -> (&'static str, u32) {
        ("ALONG", self.along.into())
    }

    /// Workgroups.
    pub fn groups(&self) -> u32 {
        self.results.div_ceil(GROUP / self.threads) * self.parts
    }

    /// Bytes of all parts, for totals of so many.
    pub fn bytes(&self, total: u64) -> u64 {
        total * u64::from(self.results) * u64::from(self.parts)
    }
}
