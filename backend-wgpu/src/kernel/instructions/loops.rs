//! Instructions of loops in the assembly that RADV prints.

use core::cmp::Reverse;
use std::collections::HashMap;

/// Instructions of one loop, as they stand in the text. Waits and hints are not counted, because they issue nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LoopCounts {
    pub instructions: u32,
    /// Number of f32 multiply-adds of an invocation. A dual instruction has two.
    pub multiply_adds: u32,
    /// Number of multiply-adds of cooperative matrices of a subgroup.
    pub matrix_multiply_adds: u32,
}

/// Beginnings of instructions that issue nothing to a unit.
const HINTS: [&str; 5] = ["s_waitcnt", "s_delay_alu", "s_clause", "s_nop", "s_code_end"];
/// Beginnings of multiply-adds of f32, and of the halves of dual instructions.
const MULTIPLY_ADDS: [&str; 6] = ["v_fma_f32", "v_fmac_f32", "v_fmaak", "v_fmamk", "v_fma_mix_f32", "v_dual_fmac"];

impl LoopCounts {
    /// Returns the counts of the loop with the most multiply-adds: from a label to the last branch back to it. Loops inside
    /// it count once.
    pub fn of_main_loop(assembly: &str) -> Option<Self> {
        let loops = Self::of_loops(assembly).into_iter();
        loops
            .max_by_key(|counts| (counts.multiply_adds, Reverse(counts.instructions)))
            .filter(|counts| counts.multiply_adds > 0)
    }

    /// Returns the counts of the shortest loop that has the most multiply-adds of cooperative matrices.
    pub fn of_matrix_loop(assembly: &str) -> Option<Self> {
        let loops = Self::of_loops(assembly).into_iter();
        loops
            .max_by_key(|counts| (counts.matrix_multiply_adds, Reverse(counts.instructions)))
            .filter(|counts| counts.matrix_multiply_adds > 0)
    }

    /// Returns the counts of the loop with the most instructions.
    pub fn of_longest_loop(assembly: &str) -> Option<Self> {
        Self::of_loops(assembly).into_iter().max_by_key(|counts| counts.instructions)
    }

    fn of_loops(assembly: &str) -> Vec<Self> {
        let lines: Vec<&str> = assembly.lines().map(str::trim).collect();
        let mut labels = HashMap::new();
        let mut loops = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            if let Some((label, _)) = line.split_once(':').filter(|(label, _)| label.starts_with("BB")) {
                labels.insert(label, at);
            }
            let mut words = line.split_whitespace();
            let is_branch = words.next().is_some_and(|word| word.starts_with("s_cbranch") || word == "s_branch");
            if let Some(&start) = words.next().filter(|_| is_branch).and_then(|label| labels.get(label)) {
                loops.push((start, at));
            }
        }
        // Branches back to one label are one loop, which ends at the last of them. Of loops around each other, the inner
        // one that has all multiply-adds.
        let is_whole =
            |&&(start, end): &&(usize, usize)| !loops.iter().any(|&(other, last)| start == other && end < last);
        loops.iter().filter(is_whole).map(|&(start, end)| Self::of_lines(&lines[start..=end])).collect()
    }

    fn of_lines(lines: &[&str]) -> Self {
        let mut counts = Self::default();
        for line in lines {
            let Some(first) = line.split_whitespace().next().filter(|word| word.starts_with(['v', 's', 'd', 'b', 'g']))
            else {
                continue;
            };
            if first.ends_with(':') || HINTS.iter().any(|hint| first.starts_with(hint)) {
                continue;
            }
            counts.instructions += 1;
            counts.matrix_multiply_adds += u32::from(first.starts_with("v_wmma_f32"));
            let halves = line.split("::").filter_map(|half| half.split_whitespace().next());
            let is_multiply_add = |word: &str| MULTIPLY_ADDS.iter().any(|start| word.starts_with(start));
            counts.multiply_adds += halves.map(|word| u32::from(is_multiply_add(word))).sum::<u32>();
        }
        counts
    }
}

#[test]
fn instructions_are_counted_in_the_loop_with_most_multiply_adds() {
    let text = "BB0:\n\tv_mov_b32 v0, 1 ; 7e000281\nBB1:\n\tv_add_u32 v0, v1, v2 ; 00\n\ts_cbranch_scc1 BB1 ; 00\nBB2:\n\
        \tds_load_b128 v[0:3], v4 ; 00\n\ts_waitcnt lgkmcnt(0) ; 00\n\tv_fmac_f32_e32 v0, v1, v2 ; 00\n\
        \tv_dual_fmac_f32 v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5 ; 00\n\ts_branch BB2 ; 00\n\ts_endpgm ; 00\n";
    let counts = LoopCounts { instructions: 4, multiply_adds: 3, matrix_multiply_adds: 0 };
    assert_eq!(LoopCounts::of_main_loop(text), Some(counts));
    assert_eq!(LoopCounts::of_longest_loop(text), Some(counts));
    assert_eq!(LoopCounts::of_matrix_loop(text), None);
    assert_eq!(LoopCounts::of_main_loop("BB0:\n\tv_mov_b32 v0, 1\n\ts_branch BB0"), None);
    let matrices = "BB3:\n\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7] ; 00\n\ts_branch BB3 ; 00\n";
    let counts = LoopCounts { instructions: 2, multiply_adds: 0, matrix_multiply_adds: 1 };
    assert_eq!(LoopCounts::of_matrix_loop(matrices), Some(counts));
}
