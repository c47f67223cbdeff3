//! Data of all regimes: images, and recordings where a regime needs them.

use super::images::Images;
use crate::{
    data::{Speech, Spoken},
    tasks::Convolutions,
};
use gradscale::gradscale_core::ops::Ctc;

/// Data on which the networks of all regimes are trained.
#[derive(Debug)]
pub struct Data {
    pub images: Images,
    /// Recordings for the speech regimes; `None` if no such regime was requested.
    pub recordings: Option<Speech>,
}

impl Data {
    /// Returns the names of the data sets, for the page.
    pub fn name(&self) -> String {
        let images = format!("images: {}", self.images.name);
        match &self.recordings {
            Some(speech) => format!(
                "{images}; recordings: {}, {} of {} shorter than their transcript",
                speech.name,
                speech.train.iter().filter(|one| is_short(one)).count(),
                speech.train.len()
            ),
            None => images,
        }
    }
}

/// Interval of cut synthetic recordings: 4 of 240, so that an epoch has a few and most batches have none.
const RECORDINGS_PER_CUT: usize = 60;

/// Cuts some synthetic recordings to a quarter, as where a recorder stops early.
///
/// The words are spoken slowly enough for every transcript. Without the cuts there would be no short recording.
pub fn cut_some(mut speech: Speech) -> Speech {
    for recording in speech.train.iter_mut().step_by(RECORDINGS_PER_CUT) {
        recording.frames = recording.frames.div_ceil(4);
        recording.spectra.truncate(recording.frames * speech.frequencies);
    }
    speech
}

/// Returns true if a recording is too short for its transcript under CTC.
pub fn is_short(recording: &Spoken) -> bool {
    let letters: Vec<u32> = recording.text.chars().map(u32::from).collect();
    Convolutions::steps(recording.frames) < Ctc::least_frames(&letters)
}
