//! Division of many sums over workgroups and invocations (parallel_reduce.wgsl).

use crate::launch::WORKGROUP_SIZE;

/// Minimum number of terms of an invocation. Below it a second workgroup for the same results is not used, because its
/// partial sums cost a second dispatch. The kernel adds 32 terms before it touches its total.
const MIN_TERMS_PER_THREAD: u32 = 32;
/// Workgroups at which a device counts as busy: with as many, results are not divided further. An estimate for all
/// devices, not measured.
const MAX_WORKGROUPS: u32 = 1024;
/// Maximum number of invocations that add the partial sums of one result. More would wait for each other at barriers for
/// a few terms each.
const MAX_FINAL_THREADS: u32 = 16;

/// Division of sums, which depends on the shape alone, so that the order of additions does too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParallelReduce {
    results: u32,
    len: u32,
    threads: u32,
    parts: u32,
    contiguous_terms: bool,
}

impl ParallelReduce {
    /// Divides `results` sums of `len` terms each. `beside` results are contiguous in memory; if it is 1, the terms of each
    /// result are.
    pub fn new(results: u32, len: u32, beside: u32) -> Self {
        let contiguous_terms = beside <= 1;
        let threads = if contiguous_terms {
            // Eight terms for each invocation before another one is added.
            len.div_ceil(8).clamp(1, WORKGROUP_SIZE).next_power_of_two()
        } else {
            (WORKGROUP_SIZE / beside.min(WORKGROUP_SIZE).next_power_of_two())
                .min(len.clamp(1, WORKGROUP_SIZE).next_power_of_two())
        };
        let workgroups_per_pass = results.div_ceil(WORKGROUP_SIZE / threads).max(1);
        let parts = (len / (threads * MIN_TERMS_PER_THREAD)).min(MAX_WORKGROUPS / workgroups_per_pass).max(1);
        Self { results, len, threads, parts, contiguous_terms }
    }

    /// Returns true if one workgroup adds all terms of a result, so that there are no partial sums.
    pub fn is_whole(&self) -> bool {
        self.parts == 1
    }

    /// Returns the division with another number of results: for the second pass if a result of the first one is a vector.
    pub fn with_results(self, results: u32) -> Self {
        Self { results, ..self }
    }

    /// Returns the division of the second pass, which adds the partial sums of each result.
    pub fn final_pass(&self) -> Self {
        let threads = self.parts.min(MAX_FINAL_THREADS).next_power_of_two();
        Self { results: self.results, len: self.parts, threads, parts: 1, contiguous_terms: false }
    }

    /// Returns the members of `ReduceShape` in parallel_reduce.wgsl.
    pub fn params(&self) -> [u32; 4] {
        [self.results, self.len, self.threads, self.parts]
    }

    /// Returns name and value of the constant `CONTIGUOUS_TERMS`.
    pub fn contiguity_constant(&self) -> (&'static str, u32) {
        ("CONTIGUOUS_TERMS", self.contiguous_terms.into())
    }

    /// Returns the number of workgroups of the reduction.
    pub fn workgroups(&self) -> u32 {
        self.results.div_ceil(WORKGROUP_SIZE / self.threads) * self.parts
    }

    /// Returns the bytes of all partial sums, for totals of `total` bytes.
    pub fn bytes(&self, total: u64) -> u64 {
        total * u64::from(self.results) * u64::from(self.parts)
    }
}
