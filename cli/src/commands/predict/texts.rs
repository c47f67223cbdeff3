//! Prediction by networks that output text: speech, translation, language.

use super::Predict;
use crate::{
    Failure,
    data::{self, Sound, Spectra},
    output,
    tasks::{Choice, InferenceModel, Transcript},
};
use indicatif::ProgressBar;
use serde_json::json;
use std::{fmt::Write, path::PathBuf, time::Duration};

/// Time between two pictures of the progress line, as indicatif's examples have it.
const TICK: Duration = Duration::from_millis(100);

/// File of the transcripts.
const TRANSCRIPTS: &str = "transcripts.tsv";
/// Files of the translations: a table of both languages, and the translations alone.
const TRANSLATIONS: [&str; 2] = ["translations.tsv", "translations.txt"];

/// Transcribes recordings by beam search and by greedy decoding.
pub(super) fn hear(
    arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel, rate: u32,
) -> Result<(), Failure> {
    let spectra = Spectra::new(rate).map_err(|cause| Failure::file(&arguments.weights, cause))?;
    // Before the work, whose result would be lost.
    output::check_listed(&arguments.out, TRANSCRIPTS)?;
    let mut table = "recording\ttext\tgreedy\n".to_owned();
    // Hidden off a terminal.
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(TICK);
    for (i, path) in files.iter().enumerate() {
        let sound = Sound::read(path)?;
        let seconds = sound.seconds();
        bar.set_message(format!("recording {} of {}: {seconds:.0} s of sound", i + 1, files.len()));
        if sound.rate != rate {
            let cause = format!("resampled from {} to {rate} Hz, the rate of the training", sound.rate);
            bar.suspend(|| output::warn(&Failure::file(path, cause)));
        }
        let sound = sound.resampled(rate).map_err(|cause| Failure::file(path, cause))?;
        let numbers: Vec<u8> = spectra.compute(&sound.samples).iter().flat_map(|x| x.to_le_bytes()).collect();
        let frequencies = spectra.frequencies();
        let answers = applied.predict([numbers.len() / 4 / frequencies, frequencies, 1], &numbers)?;
        for Transcript { text, greedy } in answers.texts() {
            writeln!(table, "{}\t{text}\t{greedy}", path.display()).ok();
            bar.suspend(|| output::print(&format!("{}: {text}\n", path.display())))?;
            output::print_json(&json!({ "input": path, "text": text, "greedy": greedy }))?;
        }
    }
    bar.finish_and_clear();
    output::write_listed(&arguments.out, TRANSCRIPTS, table.as_bytes())
}

/// Translates the lines of text files; writes a table of both languages and the translations alone.
pub(super) fn translate(
    arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel,
) -> Result<(), Failure> {
    TRANSLATIONS.iter().try_for_each(|name| output::check_listed(&arguments.out, name))?;
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut table, mut alone) = ("file\tline\tsource\ttranslation\tgreedy\n".to_owned(), String::new());
    for path in files {
        let sources = data::lines(path)?;
        let text = sources.iter().map(|source| plain(source) + "\n").collect::<String>();
        let answers = applied.predict([sources.len(), 1, 1], text.as_bytes());
        let answers = answers.map_err(|failure| Failure::file(path, failure))?;
        for (i, (source, Transcript { text, greedy })) in sources.iter().zip(answers.texts()).enumerate() {
            writeln!(table, "{}\t{}\t{}\t{text}\t{greedy}", path.display(), i + 1, plain(source)).ok();
            writeln!(alone, "{text}").ok();
            output::print(&format!("{}\n  → {text}\n", plain(source)))?;
            let source = plain(source);
            output::print_json(&json!({
                "input": path, "line": i + 1, "source": source, "text": text, "greedy": greedy,
            }))?;
        }
    }
    output::write_listed(&arguments.out, TRANSLATIONS[0], table.as_bytes())?;
    output::write_listed(&arguments.out, TRANSLATIONS[1], alone.as_bytes())
}

/// Continues the text of `--prompt` and those of files.
pub(super) fn go_on(arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel) -> Result<(), Failure> {
    let Predict { length, temperature, top_k, seed, .. } = *arguments;
    let choice = Choice { temperature, top_k, seed };
    let mut prompts: Vec<(String, String)> =
        arguments.prompt.iter().map(|text| ("prompt".to_owned(), text.clone())).collect();
    for path in files {
        let stem = path.file_stem().map_or_else(|| "text".into(), |stem| stem.to_string_lossy());
        prompts.push((stem.into_owned(), data::text(path)?));
    }
    for (name, prompt) in prompts {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let text = applied.go_on(&prompt, length, choice)?;
        output::print(&format!("{text}\n"))?;
        output::print_json(&json!({ "prompt": prompt, "text": text }))?;
        output::write_listed(&arguments.out, &format!("{name}-continued.txt"), text.as_bytes())?;
    }
    Ok(())
}
