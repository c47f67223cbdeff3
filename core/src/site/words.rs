//! A site as integers, for memory owned by a caller: settings, state, and an unfinished attempt.

use super::{
    Before, CEILING_HISTORY_LEN, Calls, Decision, Guard, Memory, Site, SiteConfig, SiteState, Trigger, When,
    ceiling_history::push,
};
use crate::{
    solve::{AMAX_ROWS, Amax, Choice, ConfigError, Exact, LimitedBy, MAX_AMAX_MARGIN},
    store_format::StoreFormat,
};
use core::fmt;

/// Number of 64-bit words of a saved site.
pub const WORDS: usize = FIXED + CEILING_HISTORY_LEN;
/// Number of words of a saved site before its ceilings.
const FIXED: usize = 28;
/// Word of a saved site that represents a missing number.
const NONE: i64 = i64::MIN;

const TIMINGS: [When; 2] = [When::Between, When::AtOnce];
const CALLS: [Calls; 2] = [Calls::One, Calls::Several];
const MEMORY: [Memory; 3] = [Memory::None, Memory::Least, Memory::Ring];
/// Word of an amax rule without history and margin: the first that does not represent a [`Memory`].
const FIRST_AMAX: i64 = MEMORY.len() as i64;
/// Number of possible amax histories, from 0 to [`AMAX_ROWS`].
const AMAX_HISTORIES: i64 = AMAX_ROWS as i64 + 1;
/// Number of possible words of memory and amax rule; each further format begins at a multiple of it.
const MEMORIES: i64 = FIRST_AMAX + (MAX_AMAX_MARGIN as i64 + 1) * AMAX_HISTORIES;
const TRIGGERS: [Trigger; 5] =
    [Trigger::First, Trigger::Interval, Trigger::Overflow, Trigger::AfterSkip, Trigger::Repeat];

impl Site {
    /// Returns everything that determines the site's next actions, and its last decision; earlier decisions are for
    /// display and not included. Unlike [`Site::state`], this may be called in the middle of a step.
    ///
    /// ```
    /// use gradscale_core::site::{Site, SiteConfig};
    /// let site = Site::new(SiteConfig::exact())?;
    /// let words = site.to_words();
    /// assert_eq!(Site::from_words(&words).map(|site| site.to_words()), Ok(words));
    /// # Ok::<(), gradscale_core::solve::ConfigError>(())
    /// ```
    #[must_use]
    pub fn to_words(&self) -> [i64; WORDS] {
        let Self {
            config,
            alpha,
            steps_since_update: since,
            at_once,
            ref ring,
            guard,
            ref history,
            before,
            failed,
            required_ceiling: tried,
            // Words are those of gradient sites; a forward site is restored through its state.
            pass: _,
        } = *self;
        let some = |exponent: Option<i32>| exponent.map_or(NONE, i64::from);
        let held = |had: Option<Before>| {
            had.map_or([0; 4], |had| [1, some(had.alpha), i64::from(had.since), i64::from(had.at_once)])
        };
        let last = history.back().map_or([0; 7], |last| {
            let Choice { k, held, gamma } = last.choice;
            let (alpha, gamma) = (i64::from(last.alpha), gamma.to_bits() as i64);
            [
                1,
                some(last.before),
                alpha,
                i64::from(k),
                place(&LimitedBy::ALL, held),
                gamma,
                place(&TRIGGERS, last.trigger),
            ]
        });
        let settings = [
            i64::from(config.interval),
            place(&TIMINGS, config.when),
            place(&CALLS, config.calls),
            memory_word(config.memory, config.amax).saturating_add(word_of(config.format)),
            some(config.outliers),
            i64::from(config.exact.ppm()),
            i64::from(config.exact.window()),
            i64::from(config.exact.headroom()),
        ];
        let state = [
            some(alpha),
            i64::from(since),
            i64::from(at_once),
            guard.limit,
            i64::from(guard.remaining_steps),
            i64::from(guard.duration_steps),
            tried.unwrap_or(NONE),
            i64::from(failed),
        ];
        let ceilings = ring.iter().chain(core::iter::repeat(NONE));
        let all = settings.into_iter().chain(state).chain(held(before)).chain(last);
        let mut words = [NONE; WORDS];
        let mut count = 0;
        ring.iter().for_each(|_| count += 1);
        for (word, value) in words.iter_mut().zip(all.chain([count]).chain(ceilings)) {
            *word = value;
        }
        words
    }

    /// Restores the cast site that [`Site::to_words`] saved.
    ///
    /// # Errors
    /// [`WordsError`] for words that no site saves.
    pub fn from_words(words: &[i64; WORDS]) -> Result<Self, WordsError> {
        let (settings, rest) = words.split_first_chunk::<8>().ok_or(WordsError::Value)?;
        let (state, rest) = rest.split_first_chunk::<8>().ok_or(WordsError::Value)?;
        let (before, rest) = rest.split_first_chunk::<4>().ok_or(WordsError::Value)?;
        let (last, rest) = rest.split_first_chunk::<7>().ok_or(WordsError::Value)?;
        let (&count, ceilings) = rest.split_first().ok_or(WordsError::Value)?;

        let [interval, when, calls, memory, outliers, ppm, window, room] = *settings;
        let gamma = f64::from(small::<u32>(ppm)?) / 1e6;
        let format = at(&StoreFormat::ALL, memory.div_euclid(MEMORIES))?;
        let (memory, amax) = memory_of(memory.rem_euclid(MEMORIES))?;
        let exact = Exact::FP16.with_gamma(gamma)?.with_window(small(window)?)?.with_headroom(small(room)?)?;
        let mut site = Self::new(SiteConfig {
            interval: small(interval)?,
            when: at(&TIMINGS, when)?,
            calls: at(&CALLS, calls)?,
            memory,
            outliers: option(outliers)?,
            exact,
            amax,
            format,
        })?;

        let [alpha, since, at_once, limit, left, lasts, tried, failed] = *state;
        let count =
            usize::try_from(count).ok().filter(|&count| count <= CEILING_HISTORY_LEN).ok_or(WordsError::Value)?;
        let mut kept = heapless::Vec::new();
        for &ceiling in ceilings.iter().take(count) {
            kept.push(ceiling).ok();
        }
        site.restore(&SiteState {
            alpha: option(alpha)?,
            since: small(since)?,
            at_once: truth(at_once)?,
            ceilings: kept,
            guard: Guard { limit, remaining_steps: small(left)?, duration_steps: small(lasts)? },
            tried: (tried != NONE).then_some(tried),
        });
        // `restore` sets the flag for every site without an exponent, but here it may be unset, after steps with zeros
        // only.
        site.at_once = truth(at_once)?;
        site.failed = small(failed)?;

        let [had, alpha, since, at_once] = *before;
        if truth(had)? {
            site.before = Some(Before { alpha: option(alpha)?, since: small(since)?, at_once: truth(at_once)? });
        }
        let [had, before, alpha, k, held, gamma, trigger] = *last;
        if truth(had)? {
            let choice =
                Choice { k: small(k)?, held: at(&LimitedBy::ALL, held)?, gamma: f64::from_bits(unsigned(gamma)) };
            let before = option(before)?;
            push(
                &mut site.history,
                Decision { before, alpha: small(alpha)?, choice, trigger: at(&TRIGGERS, trigger)? },
            );
        }
        Ok(site)
    }
}

/// Returns one word for the memory, or for margin and history of an amax rule, which has no other memory.
fn memory_word(memory: Memory, amax: Option<Amax>) -> i64 {
    amax.map_or_else(
        || place(&MEMORY, memory),
        |amax| FIRST_AMAX + i64::from(amax.margin()) * AMAX_HISTORIES + i64::from(amax.history()),
    )
}

/// Returns the number that a format adds to the word of memory and amax rule: 0 for FP16, as before formats existed.
fn word_of(format: StoreFormat) -> i64 {
    MEMORIES.saturating_mul(place(&StoreFormat::ALL, format))
}

fn memory_of(word: i64) -> Result<(Memory, Option<Amax>), WordsError> {
    if word < FIRST_AMAX {
        return Ok((at(&MEMORY, word)?, None));
    }
    let amax = word - FIRST_AMAX;
    Ok((Memory::None, Some(Amax::new(small(amax % AMAX_HISTORIES)?, small(amax / AMAX_HISTORIES)?)?)))
}

fn place<T: PartialEq>(all: &[T], one: T) -> i64 {
    (0..).zip(all).find(|(_, other)| **other == one).map_or(NONE, |(place, _)| place)
}

fn at<T: Copy>(all: &[T], word: i64) -> Result<T, WordsError> {
    usize::try_from(word).ok().and_then(|place| all.get(place)).copied().ok_or(WordsError::Value)
}

/// Returns the bits of a word as a count; Rust has a method for it since 1.87 only.
fn unsigned(word: i64) -> u64 {
    u64::from_ne_bytes(word.to_ne_bytes())
}

fn small<T: TryFrom<i64>>(word: i64) -> Result<T, WordsError> {
    T::try_from(word).map_err(|_| WordsError::Value)
}

fn option(word: i64) -> Result<Option<i32>, WordsError> {
    if word == NONE { Ok(None) } else { small(word).map(Some) }
}

fn truth(word: i64) -> Result<bool, WordsError> {
    at(&[false, true], word)
}

/// Reason why words are not a saved cast site.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum WordsError {
    /// A word of the saved site has an invalid value.
    Value,
    /// The saved settings of the site are invalid.
    Config(ConfigError),
}

impl From<ConfigError> for WordsError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for WordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value => f.write_str("a saved site has an invalid number"),
            Self::Config(error) => write!(f, "a saved site has an invalid rule: {error}"),
        }
    }
}

impl core::error::Error for WordsError {}
