//! Selection of kernels and splits for shapes whose best choice is known, and properties of every split.

use super::{KernelConfig, MainloopKind, SplitK, SplitKConstraints, TensorCores};
use crate::{
    gemm_problem::{DataPhase, GemmKind, GemmProblem},
    workspace::split_k_workspace_bytes,
};
use gradscale_core::ops::{Conv2d, Gemm, Pass};

/// Multiprocessors of an H100.
const H100: u32 = 132;
/// All tensor cores.
const TENSOR_CORES: [TensorCores; 3] = [TensorCores::M16n8k8, TensorCores::M16n8k16, TensorCores::Wgmma];
/// Its room for partial sums.
const PARTIAL_SUM_BYTES: usize = 64 << 20;

fn best_config(problem: &GemmProblem, multiprocessors: u32) -> (&'static str, SplitK) {
    best_config_in(PARTIAL_SUM_BYTES, problem, multiprocessors)
}

fn best_config_in(workspace_bytes: usize, problem: &GemmProblem, multiprocessors: u32) -> (&'static str, SplitK) {
    let config = KernelConfig::candidates(problem, workspace_bytes, multiprocessors, TensorCores::Wgmma)[0];
    let constraints = SplitKConstraints::new(&config.problem(problem), workspace_bytes);
    (config.kernel.module.name, config.split_k(&constraints, multiprocessors))
}

fn matrices([m, n, k]: [u32; 3]) -> GemmProblem {
    GemmProblem::gemm(&Gemm::new(m, n, k).expect("a shape"))
}

/// 7 × 7, as of SegNet's layers.
fn convolution(c: u32, o: u32, [h, w]: [u32; 2], pass: Pass) -> GemmProblem {
    GemmProblem::conv(&Conv2d::padded([12, h, w, c], o, [7, 7], [3, 3]).expect("a shape"), pass)
}

#[test]
fn tiles_by_even_rounds() {
    for (shape, multiprocessors, name, splits) in [
        // 128 tiles, which are fewer than 132 multiprocessors, and still one round.
        ([2048; 3], H100, "wgmma_tma_gemm_128x256", 1),
        ([4096; 3], H100, "wgmma_tma_gemm_128x256", 1),
        ([8192; 3], H100, "wgmma_tma_gemm_128x256", 1),
        // 32 large tiles would leave three quarters idle.
        ([1024; 3], H100, "wgmma_tma_gemm_128x128", 1),
        // 67 pairs of large tiles: the last alone would take a round as long as all others.
        ([128 * 134, 256, 4096], H100, "wgmma_tma_gemm_128x128", 1),
        ([128 * 134, 256, 4096], 134, "wgmma_tma_gemm_128x256", 1),
        // Columns of which the large tile would waste most.
        ([8192, 64, 1024], H100, "wgmma_tma_gemm_128x128", 1),
        // Few results of long sums are cut: 4 tiles on 132 multiprocessors.
        ([256, 256, 8192], H100, "wgmma_tma_gemm_128x128", 32),
        // One row (gemv): the smallest tile, or TMA for long sums.
        ([1, 1024, 1024], H100, "mma_sync_gemm_64x64", 4),
        ([1, 1024, 4096], H100, "wgmma_tma_gemm_128x128", 16),
        // Nothing to share.
        ([8, 8, 8], H100, "mma_sync_gemm_64x64", 1),
    ] {
        let (chosen, split_k) = best_config(&matrices(shape), multiprocessors);
        assert_eq!((chosen, split_k.splits), (name, splits), "{shape:?} on {multiprocessors}");
    }
}

/// Without warpgroups, tiles of 128 × 256 read the fewest bytes of shared memory for each product, where there are enough.
#[test]
fn devices_without_warpgroups_take_the_largest_tile_that_fills_them() {
    /// Multiprocessors of an A100 and of a T4.
    const A100: u32 = 108;
    const T4: u32 = 40;
    let channels = |c| convolution(c, c, [90, 120], Pass::Forward);
    let (m16n8k8, m16n8k16) = (TensorCores::M16n8k8, TensorCores::M16n8k16);
    for (problem, multiprocessors, tensor_cores, name) in [
        (matrices([4096; 3]), A100, m16n8k16, "mma_sync_gemm_128x256"),
        // It does not fit a T4.
        (matrices([4096; 3]), T4, m16n8k8, "mma_sync_gemm_128x128"),
        // 32 of the largest tiles would leave most of an A100 idle.
        (matrices([1024; 3]), A100, m16n8k16, "mma_sync_gemm_128x128"),
        (channels(256), A100, m16n8k16, "mma_sync_forward_128x256"),
        // Two blocks of it fit a T4.
        (channels(64), T4, m16n8k8, "mma_sync_forward_128x64"),
    ] {
        let config = KernelConfig::candidates(&problem, PARTIAL_SUM_BYTES, multiprocessors, tensor_cores)[0];
        assert_eq!(config.kernel.module.name, name, "{:?} on {multiprocessors}", problem.shape);
    }
}

#[test]
fn weights_of_few_outputs_have_them_as_columns() {
    for (c, o, name) in [
        (64, 64, "wgmma_tma_weight_t_128x64"),
        (64, 32, "wgmma_tma_weight_t_128x64"),
        (64, 128, "wgmma_tma_weight_128x128"),
        // Pictures, padded.
        (8, 64, "wgmma_weight_t_128x64"),
    ] {
        let problem = convolution(c, o, [180, 240], Pass::Weight);
        let (chosen, split_k) = best_config(&problem, H100);
        assert_eq!(chosen, name, "{c} to {o}");
        // No more splits than there are multiprocessors to work on them, where the kernel adds long sums itself.
        assert!(split_k.splits <= 4 * H100 && (c == 8 || split_k.splits <= 21), "{c} to {o}: {split_k:?}");
    }
}

/// SegNet's convolutions of few channels read halos. Images smaller than a tile waste most of it.
#[test]
fn few_channels_are_convolved_from_halo_tiles() {
    for (c, o, size, pass, name) in [
        (64, 64, [360, 480], Pass::Forward, "conv_halo_forward"),
        (64, 64, [180, 240], Pass::Data, "conv_halo_data"),
        (64, 64, [90, 120], Pass::Forward, "conv_halo_forward"),
        // 144 tiles would take two rounds.
        (64, 64, [45, 60], Pass::Forward, "wgmma_tma_forward_128x64"),
        // Pictures, padded.
        (8, 64, [360, 480], Pass::Forward, "conv_halo_forward"),
        (128, 128, [180, 240], Pass::Forward, "wgmma_tma_forward_128x128"),
    ] {
        assert_eq!(best_config(&convolution(c, o, size, pass), H100).0, name, "{c} to {o} of {size:?}");
    }
    let small = Conv2d::padded([256, 9, 9, 64], 64, [3, 3], [1, 1]).expect("a shape");
    assert_eq!(best_config(&GemmProblem::conv(&small, Pass::Forward), H100).0, "wgmma_tma_forward_128x64");
}

/// Sizes that look random, the same in every run.
fn sizes() -> impl Iterator<Item = [u32; 3]> {
    let mut state = 3u32;
    let mut next = move |max_splits: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        8 + (state >> 8) % (1 << (3 + (state >> 4) % max_splits))
    };
    (0..300).map(move |_| [next(12), next(12), next(16)])
}

#[test]
fn every_cut_is_whole_and_nearly_the_best() {
    for (i, shape) in sizes().enumerate() {
        let multiprocessors = [1, 2, 16, 108, H100][i % 5];
        let [m, n, k] = shape;
        let gemm = Gemm::new(m, n, k).expect("a shape");
        let problem = GemmProblem::gemm(&if i % 2 == 0 { gemm } else { gemm.transpose_a().expect("a shape") });
        let constraints = SplitKConstraints::new(&problem, PARTIAL_SUM_BYTES);
        let (k, tensor_cores) = (constraints.shape.k, TENSOR_CORES[i % 3]);
        let candidates = KernelConfig::candidates(&problem, PARTIAL_SUM_BYTES, multiprocessors, tensor_cores);
        assert!(
            candidates.last().is_some_and(|config| !config.is_arch_specific()),
            "{shape:?}: a way that needs no proof"
        );
        for config in candidates {
            let split_k = config.split_k(&constraints, multiprocessors);
            let SplitK { splits, split_len, cycles } = split_k;
            assert!(
                split_len % 64 == 0 && splits * split_len >= k && (splits - 1) * split_len < k,
                "{shape:?}: {split_k:?}"
            );
            let min_splits = k.div_ceil(constraints.max_accumulation_k);
            assert!(splits <= constraints.max_splits.max(min_splits), "{shape:?}: {split_k:?} of {constraints:?}");
            assert!(split_len <= constraints.max_accumulation_k || config.has_store_warps(), "{shape:?}: {split_k:?}");
            let all = (min_splits.max(1)..=constraints.max_splits.max(min_splits)).take(600);
            let fewest = all.map(|splits| config.split_into(splits, &constraints, multiprocessors).cycles).min();
            assert!(fewest.is_none_or(|fewest| 10 * cycles <= 11 * fewest), "{shape:?}: {split_k:?}, {fewest:?}");
        }
    }
}

/// The weight gradients of SegNet's third and fourth level have 803 kB of results, in 25 tiles for 132 multiprocessors.
#[test]
fn weight_gradients_of_few_tiles_are_cut_where_there_is_room() {
    for (level, size) in [("conv3", [90, 120]), ("conv4", [45, 60])] {
        let problem = convolution(64, 64, size, Pass::Weight);
        let (chosen, split_k) = best_config(&problem, H100);
        assert_eq!(chosen, "wgmma_tma_weight_t_128x64", "{level}");
        assert!(split_k.splits >= 5, "{level}: {split_k:?}");
        // Room for two splits, as 256 KiB or a sixteenth of the operands once were, and for none.
        let result_count = 4 * 64 * 64 * 49;
        for (workspace_bytes, max_splits) in [(2 * result_count, 2), (result_count / 2, 1)] {
            let constraints = SplitKConstraints::new(&problem, workspace_bytes);
            for config in KernelConfig::candidates(&problem, workspace_bytes, H100, TensorCores::Wgmma) {
                // Sums longer than one accumulator may add are split in any case.
                let min_splits = if config.has_store_warps() {
                    1
                } else {
                    constraints.shape.k.div_ceil(constraints.max_accumulation_k)
                };
                assert!(
                    config.split_k(&constraints, H100).splits <= min_splits.max(max_splits),
                    "{level}: {config:?} in {workspace_bytes}"
                );
            }
        }
    }
}

#[test]
fn room_for_partial_sums_is_a_matter_of_the_whole_memory() {
    let [small_tiles, large] = [1u64 << 30, 80 << 30].map(split_k_workspace_bytes);
    assert_eq!(
        (small_tiles, large, split_k_workspace_bytes(8 << 30), split_k_workspace_bytes(0)),
        (8 << 20, PARTIAL_SUM_BYTES, PARTIAL_SUM_BYTES, 0)
    );
    // 4 MB of results: as many splits as an H100 wants, or two where a device has 1 GiB.
    let problem = GemmProblem::conv(&Conv2d::new([256, 7, 7, 512], 2048, [1, 1]).expect("a shape"), Pass::Weight);
    let max_splits = |workspace_bytes| SplitKConstraints::new(&problem, workspace_bytes).max_splits;
    assert_eq!((max_splits(large), max_splits(small_tiles)), (16, 2));
    // One accumulator adds 4096 of 12 544 pixels at most: four splits are made whatever the room.
    let [(_, many_splits), (_, few_splits)] =
        [large, small_tiles].map(|workspace_bytes| best_config_in(workspace_bytes, &problem, 8 * H100));
    assert!(few_splits.splits <= 4 && few_splits.splits < many_splits.splits, "{few_splits:?} {many_splits:?}");
}

/// Channels of Inception, which are multiples of eight but not of 64: TMA fills zeros. Where they would be more than half,
/// or a weight gradient would need a reduction for little, threads load.
#[test]
fn channels_of_any_eight_come_by_tma() {
    let chosen = |c, o, pass| {
        let p = Conv2d::padded([32, 35, 35, c], o, [3, 3], [1, 1]).expect("a shape");
        best_config(&GemmProblem::conv(&p, pass), H100).0
    };
    for channels in [48, 96, 112, 160, 208, 288] {
        assert!(chosen(channels, 96, Pass::Forward).starts_with("wgmma_tma_forward"), "{channels}");
        assert!(chosen(96, channels, Pass::Data).starts_with("wgmma_tma_data"), "{channels}");
    }
    for channels in [112, 160, 208, 288] {
        assert!(chosen(channels, 96, Pass::Weight).starts_with("wgmma_tma_weight"), "{channels}");
    }
    assert_eq!(chosen(16, 96, Pass::Forward), "conv_halo_forward");
    // Planes of eight channels come in pairs.
    assert_eq!(chosen(24, 96, Pass::Forward), "wgmma_forward_128x128");
}

/// Phases of ResNet-50's strided convolutions are loaded by TMA, which never loads a stride in the data pass.
#[test]
fn phases_of_a_stride_come_by_tma() {
    for [c, o, side, kernel] in [[128, 128, 56, 3], [512, 512, 14, 3], [256, 512, 56, 1]] {
        let p = Conv2d::padded([128, side, side, c], o, [kernel; 2], [kernel / 2; 2]).and_then(|p| p.stride([2, 2]));
        let p = p.expect("a shape");
        let (strided, _) = best_config(&GemmProblem::conv(&p, Pass::Data), H100);
        assert!(!strided.contains("tma"), "{strided}");
        for phase in DataPhase::of_conv(&p).expect("small numbers") {
            let problem = GemmProblem::data_phase(&p, &phase);
            let (chosen, _) = best_config(&problem, H100);
            assert!(problem.shape.k == 0 || chosen.starts_with("wgmma_tma_data"), "{kernel}: {chosen}");
        }
    }
}

/// Copies are worth it for the logits of a decoder and for a classifier, not where a launch costs more than the product.
#[test]
fn operands_are_copied_where_that_is_faster() {
    let is_faster = |unaligned: GemmProblem, aligned: GemmProblem, bytes| {
        KernelConfig::is_copy_faster([&unaligned, &aligned], bytes, PARTIAL_SUM_BYTES, H100, TensorCores::Wgmma)
    };
    // Gradient of 16 384 tokens from logits of 50 257 words.
    let logits = is_faster(matrices([16_384, 768, 50_257]), matrices([16_384, 768, 50_264]), 2 * 16_384 * 50_264);
    let small = is_faster(matrices([32, 16, 33]), matrices([32, 16, 40]), 2 * 32 * 40);
    let classifier = |outputs| {
        let p = Conv2d::new([12, 360, 480, 64], outputs, [1, 1]).expect("a shape");
        GemmProblem::conv(&p, Pass::Weight)
    };
    let classifier = is_faster(classifier(11), classifier(16), 2 * 12 * 360 * 480 * 16);
    assert_eq!((logits, small, classifier), (true, false, true));
}

/// The model's instruction counts of copies are those that sass.py has counted in machine code.
#[test]
fn copies_cost_what_was_counted() {
    let mut seen = 0;
    for pass in Pass::ALL {
        for config in KernelConfig::wgmma_candidates(GemmKind::Conv(pass)) {
            if config.mainloop != MainloopKind::WgmmaCpAsync {
                continue;
            }
            let name = format!("copies of {},90,", config.kernel.module.name);
            let line = include_str!("../../sass.csv").lines().find_map(|line| line.strip_prefix(&name));
            let counted: f64 = line.and_then(|line| line.split(',').next()?.parse().ok()).expect("a count");
            let (m, n) = (f64::from(config.tile.m), f64::from(config.tile.n));
            let (a, b) = (f64::from(config.loads.rows), f64::from(config.loads.columns));
            let modelled = (m * a + n * b) / (m + n);
            assert!((modelled / counted - 1.0).abs() < 0.08, "{name} {counted}, in the model {modelled}");
            seen += 1;
        }
    }
    assert_eq!(seen, 7);
}

/// Returns the kernel on tensor cores that the model prefers to one without, for f32 operands.
fn best_bf16x6(problem: &GemmProblem) -> Option<&'static str> {
    let candidates = KernelConfig::bf16x6_faster_than_simt(problem, PARTIAL_SUM_BYTES, H100);
    candidates.first().map(|config| config.kernel.module.name)
}

#[test]
fn f32_on_tensor_cores() {
    for (shape, name) in [
        ([4096; 3], Some("wgmma_bf16x6_gemm_128x128")),
        // 64 large tiles would leave half of the multiprocessors idle.
        ([1024; 3], Some("wgmma_bf16x6_gemm_128x64")),
        ([16384, 64, 1024], Some("wgmma_bf16x6_gemm_128x64")),
        // Two launches of the split are shorter than four tiles without tensor cores.
        ([256; 3], Some("wgmma_bf16x6_gemm_128x64")),
        // Sums that are too short, and rows that are not aligned.
        ([4096, 4096, 192], None),
        ([4096, 4100, 4096], None),
    ] {
        assert_eq!(best_bf16x6(&matrices(shape)), name, "{shape:?}");
    }
    for (c, o, pass, name) in [
        (64, 64, Pass::Forward, Some("wgmma_bf16x6_forward_128x64")),
        (64, 64, Pass::Data, Some("wgmma_bf16x6_data_128x64")),
        (64, 64, Pass::Weight, Some("wgmma_bf16x6_weight_t_128x64")),
        (128, 128, Pass::Weight, Some("wgmma_bf16x6_weight_128x128")),
        // Pictures of four channels, which TMA does not load.
        (4, 64, Pass::Forward, None),
    ] {
        assert_eq!(best_bf16x6(&convolution(c, o, [180, 240], pass)), name, "{c} to {o}, {pass:?}");
    }
    let strided = Conv2d::padded([12, 180, 240, 64], 64, [3, 3], [1, 1]).expect("a shape");
    let strided = strided.stride([2, 2]).expect("a shape");
    assert_eq!(best_bf16x6(&GemmProblem::conv(&strided, Pass::Data)), None, "it is computed in phases");
}
