//! Bands of products of f32 operands, so that the parts of a large operand need little scratch memory at a time, and stay in
//! L2 until they are multiplied.
//!
//! A band is a contiguous range of an operand: some rows of a matrix, some matrices of a batch, or some images of a
//! convolution. A weight gradient is a sum over all images, so its bands are splits of that sum. Matrices whose rows are
//! not contiguous are one band.

use crate::{
    conv_copies::resized,
    gemm_problem::{GemmProblem, MIN_SPLIT_PIXELS, ResultPlacement},
    kernels::OPERAND_PARTS,
};
use gradscale_core::ops::{Conv2d, Gemm, GemmShape, Pass};

/// Rows of which a band has a multiple: those of the largest tile.
const BAND_ROWS: u32 = 128;
/// Bytes of the parts of a value.
pub(crate) const PARTS_BYTES: u64 = 2 * OPERAND_PARTS as u64;

/// Limits of bands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BandLimits {
    /// Bytes of the parts of a band's rows, matrices or images, if these can be divided.
    pub divided_bytes: u64,
    /// Bytes of all parts of a band.
    pub total_bytes: u64,
    /// Bytes of the partial sums of all bands of a weight gradient.
    pub partial_sum_bytes: u64,
}

/// Contiguous range of an operand, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub first: u64,
    pub len: u64,
}

impl Span {
    /// Returns the range of `count` rows, matrices or images from `first` on, of which each has `len` elements.
    fn new(first: u32, count: u32, stride: u32, len: u64) -> Self {
        let stride = u64::from(stride);
        Self { first: u64::from(first) * stride, len: u64::from(count - 1) * stride + len }
    }
}

/// Part of a product, and the ranges of a and b that it reads.
#[derive(Clone, Copy)]
pub(crate) struct Band {
    pub problem: GemmProblem,
    pub spans: [Span; 2],
}

/// All bands of a product.
pub(crate) struct Bands {
    pub bands: Vec<Band>,
    /// True if results are the sums of all bands.
    pub are_summed: bool,
}

impl Bands {
    /// Divides a product of matrices; `None` if its parts do not fit.
    pub fn of_gemm(p: &Gemm, limits: BandLimits) -> Option<Self> {
        let (problem, GemmShape { m, k, .. }, batch) = (GemmProblem::gemm(p), p.shape(), p.batch());
        let ([is_transposed, _], lead, strides) = (p.transposed(), p.lead(), p.strides());
        let whole = [0, 1].map(|i| Span { first: 0, len: problem.lens[i] as u64 });
        // Elements of one matrix of a batch.
        let matrix_lens = [0, 1].map(|i| whole[i].len - u64::from(batch.saturating_sub(1)) * u64::from(strides[i]));
        let fitting = |bytes: u64, count: u32| u32::try_from(limits.divided_bytes / bytes.max(1)).unwrap_or(count);
        let bands = if PARTS_BYTES * (whole[0].len + whole[1].len) <= limits.divided_bytes {
            vec![Band { problem, spans: whole }]
        } else if batch > 1 {
            let count = fitting(PARTS_BYTES * (matrix_lens[0] + matrix_lens[1]), batch).clamp(1, batch);
            ranges(batch, count)
                .map(|(first, count)| Band {
                    problem: GemmProblem {
                        batch: count,
                        placement: ResultPlacement { start: first * problem.y_stride, ..problem.placement },
                        ..problem
                    },
                    spans: [0, 1].map(|i| Span::new(first, count, strides[i], matrix_lens[i])),
                })
                .collect()
        } else if is_transposed {
            vec![Band { problem, spans: whole }]
        } else {
            let rows = fitting(PARTS_BYTES * u64::from(lead[0]), m) / BAND_ROWS * BAND_ROWS;
            ranges(m, rows.max(BAND_ROWS))
                .map(|(first, rows)| Band {
                    problem: GemmProblem {
                        shape: GemmShape { m: rows, ..problem.shape },
                        placement: ResultPlacement { start: first * problem.ldy, ..problem.placement },
                        ..problem
                    },
                    spans: [Span::new(first, rows, lead[0], u64::from(k)), whole[1]],
                })
                .collect()
        };
        Self { bands, are_summed: false }.filter(limits)
    }

    /// Divides a pass of a convolution by its images; `None` if its parts do not fit.
    pub fn of_conv(p: &Conv2d, pass: Pass, limits: BandLimits) -> Option<Self> {
        let images = p.x()[0];
        let whole = GemmProblem::conv(p, pass);
        let image_len = |[_, h, w, c]: [u32; 4]| h * w * c;
        let [x, y] = [image_len(p.x()), image_len(p.y())];
        // Elements of an image in both operands, `None` of a weight, and in the result.
        let (operands, result) = match pass {
            Pass::Forward => ([Some(x), None], y),
            Pass::Data => ([Some(y), None], x),
            Pass::Weight => ([Some(y), Some(x)], 0),
        };
        let image_bytes = PARTS_BYTES * operands.iter().flatten().map(|&len| u64::from(len)).sum::<u64>();
        let fitting = u32::try_from(limits.divided_bytes / image_bytes.max(1)).unwrap_or(images).clamp(1, images);
        let count = if pass == Pass::Weight {
            // A band has two splits, so that their sums are partial ones. Few bands, because each has all results.
            let split_bytes = 4 * whole.in_whole_boxes().result_count() as u64;
            let max_bands = u32::try_from(limits.partial_sum_bytes / (2 * split_bytes).max(1)).unwrap_or(images);
            let is_divisible = p.y()[1] * p.y()[2] > MIN_SPLIT_PIXELS;
            if is_divisible { fitting.max(images.div_ceil(max_bands.max(1))) } else { images }
        } else {
            fitting
        };
        let are_summed = pass == Pass::Weight && count < images;
        let bands = ranges(images, count).map(|(first, count)| {
            let problem = GemmProblem::conv(&resized(p, count, p.x()[3], p.y()[3])?, pass);
            let start = first * result;
            let problem = GemmProblem {
                min_splits: if are_summed { 2 } else { 1 },
                placement: ResultPlacement { start, ..problem.placement },
                lens: whole.lens,
                ..problem
            };
            let span = |i: usize| match operands[i] {
                Some(len) => Span::new(first, count, len, u64::from(len)),
                None => Span { first: 0, len: whole.lens[i] as u64 },
            };
            Some(Band { problem, spans: [span(0), span(1)] })
        });
        Self { bands: bands.collect::<Option<_>>()?, are_summed }.filter(limits)
    }

    /// Returns the largest numbers of elements that bands read of a and b.
    pub fn max_lens(&self) -> [u64; 2] {
        [0, 1].map(|i| self.bands.iter().map(|band| band.spans[i].len).max().unwrap_or(0))
    }

    /// Returns these bands if the parts of each fit.
    fn filter(self, limits: BandLimits) -> Option<Self> {
        let [a, b] = self.max_lens();
        (PARTS_BYTES * (a + b) <= limits.total_bytes).then_some(self)
    }
}

/// Returns first and count of ranges of at most `count` of `total`.
fn ranges(total: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..total).step_by(count.max(1) as usize).map(move |first| (first, count.min(total - first)))
}

#[cfg(test)]
mod tests {
    use super::{BandLimits, Bands, Span};
    use gradscale_core::ops::{Conv2d, Gemm, Pass};

    /// Limits by which 128 rows of 256 values are a band.
    const LIMITS: BandLimits =
        BandLimits { divided_bytes: 6 * 128 * 256, total_bytes: 1 << 30, partial_sum_bytes: 1 << 22 };

    fn spans(bands: &Bands, operand: usize) -> Vec<(u64, u64)> {
        bands.bands.iter().map(|band| (band.spans[operand].first, band.spans[operand].len)).collect()
    }

    fn starts(bands: &Bands) -> Vec<u32> {
        bands.bands.iter().map(|band| band.problem.placement.start).collect()
    }

    #[test]
    fn matrices_are_divided_by_rows() {
        let p = Gemm::new(300, 64, 256).expect("a shape");
        let bands = Bands::of_gemm(&p, LIMITS).expect("it fits");
        assert_eq!(spans(&bands, 0), [(0, 128 * 256), (128 * 256, 128 * 256), (256 * 256, 44 * 256)]);
        assert_eq!(spans(&bands, 1), [(0, 256 * 64); 3]);
        assert_eq!(starts(&bands), [0, 128 * 64, 256 * 64]);
        assert_eq!(bands.max_lens(), [128 * 256, 256 * 64]);
        // Rows of a transposed a are not contiguous.
        let transposed = Bands::of_gemm(&p.transpose_a().expect("a shape"), LIMITS).expect("it fits");
        assert_eq!(transposed.bands.len(), 1);
        assert_eq!(transposed.bands[0].spans, [Span { first: 0, len: 300 * 256 }, Span { first: 0, len: 256 * 64 }]);
        let no_room = BandLimits { total_bytes: 6 * (300 + 64) * 256 - 1, ..LIMITS };
        assert!(Bands::of_gemm(&p.transpose_a().expect("a shape"), no_room).is_none());
        assert!(Bands::of_gemm(&p, no_room).is_some());
    }

    #[test]
    fn batches_are_divided_by_matrices() {
        let p = Gemm::new(32, 64, 256).and_then(|p| p.batched(3, [9000, 256 * 64, 32 * 64])).expect("a shape");
        let bands = Bands::of_gemm(&p, LIMITS).expect("it fits");
        assert_eq!(spans(&bands, 0), [(0, 32 * 256), (9000, 32 * 256), (18000, 32 * 256)]);
        assert_eq!(spans(&bands, 1), [(0, 256 * 64), (256 * 64, 256 * 64), (2 * 256 * 64, 256 * 64)]);
        assert_eq!(starts(&bands), [0, 32 * 64, 2 * 32 * 64]);
    }

    #[test]
    fn convolutions_are_divided_by_images() {
        let p = Conv2d::padded([3, 12, 12, 64], 128, [3, 3], [1, 1]).expect("a shape");
        let (x, y, w) = (12 * 12 * 64_u32, 12 * 12 * 128_u32, 9 * 64 * 128);
        let limits = BandLimits { divided_bytes: 6 * u64::from(x), ..LIMITS };
        for (pass, image, result) in [(Pass::Forward, x, y), (Pass::Data, y, x)] {
            let bands = Bands::of_conv(&p, pass, limits).expect("it fits");
            assert_eq!(bands.bands.len(), 3, "{pass:?}");
            assert_eq!(spans(&bands, 0), [0, 1, 2].map(|i| (i * u64::from(image), u64::from(image))));
            assert_eq!(spans(&bands, 1), [(0, w); 3]);
            assert_eq!(starts(&bands), [0, 1, 2].map(|i| i * result));
            assert!(!bands.are_summed);
        }
        let weight = Bands::of_conv(&p, Pass::Weight, limits).expect("it fits");
        assert!(weight.are_summed && weight.bands.iter().all(|band| band.problem.min_splits == 2));
        // Partial sums of one band, and no more.
        let one_band = BandLimits { partial_sum_bytes: 2 * 4 * w, ..limits };
        let weight = Bands::of_conv(&p, Pass::Weight, one_band).expect("it fits");
        assert!(!weight.are_summed && weight.bands.len() == 1 && weight.bands[0].problem.min_splits == 1);
    }
}
