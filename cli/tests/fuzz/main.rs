//! Fuzz tests of our own parsers on random bytes and mutated files: each input is read or refused, nothing panics, and
//! memory stays bounded. IDX has its own test, with the other data files.

mod optimizers;

use gradscale::{
    Cpu, Input, Method, Observation, Parameters, Trainer, checkpoint_metadata,
    gradscale_core::{
        solve::Exact,
        stats::{Convention, Detail, Stats, WORDS},
    },
    nn::{Linear, Module},
    optim::Sgd,
};
use gradscale_cli::{commands::replay, config, data::Classes, setup::Methods, trace};
use std::{collections::BTreeMap, fs, thread};

/// Pseudo-random numbers, each below its argument.
struct Numbers(u64);

impl Numbers {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.word() >> 33).expect("31 bits") % n.max(1)
    }
}

/// One input in eight is noise; the others are an example with some parts changed, moved, repeated or left out.
fn input(random: &mut Numbers, examples: &[&[u8]], words: &[&str]) -> Vec<u8> {
    if random.below(8) == 0 {
        return (0..random.below(64)).map(|_| random.word().to_le_bytes()[3]).collect();
    }
    let mut bytes = examples[random.below(examples.len())].to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(12)).min(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, b'9', b'-', 0xFF][random.below(4)],
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => drop(bytes.splice(at..end, words[random.below(words.len())].bytes())),
        }
    }
    bytes
}

/// Passes `count` inputs (or [`some_of`] them) to `parse`, on two threads. Returns the number of accepted inputs.
fn fuzz(
    name: &str, count: usize, examples: &[&[u8]], words: &[&str], parse: impl Fn(&[u8]) -> bool + Sync,
) -> (usize, usize) {
    let count = some_of(count);
    let half = |seed: u64| {
        let mut random = Numbers(seed);
        (0..count / 2).filter(|_| parse(&input(&mut random, examples, words))).count()
    };
    let taken = thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(2) + other.join().expect("no panic")
    });
    println!("{name}: of {count} inputs {taken} were read, {} refused", count - taken);
    // Inputs that are all refused, or all taken, would test little.
    assert!(taken > count / 500 && taken < count - count / 500, "{name}: {taken}");
    (taken, count)
}

const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1e999",
    "1e-999",
    "NaN",
    "inf",
    "4294967296",
    "18446744073709551616",
    "-2147483648",
    "0x1",
    "1e-3",
    " ",
    "",
    "\n",
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const MILLION: usize = 1_000_000;

/// Returns a quarter of `count` with `GRADSCALE_BRIEF=1`, which `./test.sh` sets. Inputs are always the same; `--all`
/// tests all.
fn some_of(count: usize) -> usize {
    if std::env::var("GRADSCALE_BRIEF").is_ok_and(|value| value == "1") { count / 4 } else { count }
}

fn methods() {
    let names = [
        "fp32",
        "fp16",
        "fixed:1024",
        "dynamic",
        "dynamic:10",
        "logmax",
        "delayed",
        "gs",
        "gs:exact,gamma=1e-4,interval=100,window=11",
        "gs:paper-literal,gamma=1e-2",
        "gs:authors,interval=7",
        "gs,room=6,history=1",
        "fixed:2^7,wgrad=half",
        "dynamic:init=1024,interval=5,growth=4,backoff=0.25,least=2^-3,most=2^20,tolerance=0.05",
        "dynamic:hysteresis=cumulative:2,floor=40:2/90:2^4",
        "logmax:mean=0.9,quantile=2.5,ceiling=2^15",
        "delayed:history=4,margin=2,least=2^-3",
    ];
    let examples: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let words = [&NUMBERS[..], &names[..], &[",", ":", "=", "gamma=", "interval=", "gs:"]].concat();
    fuzz("method", MILLION, &examples, &words, |bytes| {
        let text = text(bytes);
        let method = text.parse::<Method>();
        assert_eq!(method, format!(" {text}\t").parse(), "{text:?}");
        if let Ok(method) = &method {
            assert_eq!(method.to_string().parse().as_ref(), Ok(method), "{text:?} is shown as {method}");
        }
        if let Err(error) = &method {
            assert!(error.to_string().starts_with(&format!("method {}: ", text.trim())), "{error}");
        }
        method.is_ok()
    });
    let lists: Vec<String> =
        (0..names.len()).map(|i| format!("{},{}", names[i], names[(i + 3) % names.len()])).collect();
    let examples: Vec<&[u8]> = lists.iter().map(|list| list.as_bytes()).collect();
    fuzz("--methods", MILLION, &examples, &words, |bytes| {
        let Ok(Methods(list)) = text(bytes).parse::<Methods>() else { return false };
        for (i, (name, method)) in list.iter().enumerate() {
            assert_eq!(name.parse().as_ref(), Ok(method));
            assert!(!list[..i].iter().any(|(other, _)| other == name), "{name} twice");
        }
        true
    });
}

fn configuration() {
    let examples = [
        &b"iters = 3\nbatch = 2\nmethods = [\"fp32\", \"fixed:8\"]\nout = \"a\"\n"[..],
        b"seeds = [0, 1]\neval-every = 1_000\n# a comment\n[data]\nx = 1.5\n",
        b"verbose = true\nquiet = false\nwidth = 16\n",
    ];
    let words =
        [&NUMBERS[..], &["[", "]", "=", "\"", "'''", "iters", "config = 1", "a.b = 1", "{}", "true", "[[x]]"]].concat();
    let known = ["iters", "batch", "methods", "out", "seeds", "eval-every", "verbose", "quiet", "width", "config"];
    fuzz("configuration", MILLION, &examples, &words, |bytes| {
        let result = config::flags(&text(bytes), |key| known.contains(&key));
        for (key, flag) in result.iter().flatten() {
            let value = flag.strip_prefix(&format!("--{key}")).expect("its key");
            assert!(known.contains(&key.as_str()) && key != "config" && (value.is_empty() || value.starts_with('=')));
        }
        result.is_ok()
    });
}

fn tables() {
    let examples = [
        &b"id\tname\tr\tg\tb\n0\tSky\t1\t2\t3\n1\tRoad\t4\t5\t6\n2\tvoid\t0\t0\t0\n"[..],
        b"name\tid\nSky\t0\nUnlabelled\t255\n",
        b"id\tname\textra\r\n0\ta\tb\r\n1\tc\r\n\r\n2\td\n",
    ];
    let words =
        [&NUMBERS[..], &["\t", "id", "name", "\tr\tg\tb", "void", "ignore", "255", "256", "1\tx\n", "\r"]].concat();
    fuzz("classes.tsv", MILLION, &examples, &words, |bytes| match Classes::parse(&text(bytes)) {
        Ok(classes) => {
            assert!(!classes.names.is_empty() && classes.names.len() <= 256);
            assert_eq!(classes.names.len(), classes.colours.len());
            true
        }
        Err((line, reason)) => {
            assert!(line >= 1 && line <= 1 + text(bytes).lines().count() && !reason.is_empty());
            false
        }
    });
}

/// Words of a row, some of them changed: an accepted row must be one that rules can decide from.
fn rows() {
    let row = |detail: Detail, values: &[f32]| {
        let mut row = Stats::new(Convention::FP16, 3, detail);
        row.observe(values);
        row.to_words()
    };
    let values: Vec<f32> = (0..500i16).map(|i| f32::from(i % 61 - 30) * 2f32.powi(i32::from(i % 40) - 30)).collect();
    let examples = [
        row(Detail::Counts, &values),
        row(Detail::Full, &values),
        row(Detail::Moments, &values),
        row(Detail::Full, &[0.0, -0.0]),
        row(Detail::Moments, &[f32::INFINITY, f32::NAN, 1e30]),
    ];
    let mut random = Numbers(3);
    let (count, mut taken) = (some_of(MILLION), 0);
    for _ in 0..count {
        let mut words = examples[random.below(examples.len())];
        for _ in 0..random.below(4) {
            let at = [random.below(16), random.below(WORDS)][random.below(2)];
            let [_, _, _, _, low @ ..] = random.word().to_le_bytes();
            words[at] = match random.below(4) {
                0 => u32::MAX,
                1 => u32::from_le_bytes(low) % 4,
                2 => words[at] ^ 1 << random.below(32),
                _ => u32::from_le_bytes(low),
            };
        }
        let len = if random.below(8) == 0 { random.below(WORDS) } else { WORDS };
        let exponent = [0, 9, -300, i32::MAX, i32::MIN][random.below(5)];
        let Ok(row) = Stats::from_words(&words[..len], Convention::FP16, exponent) else { continue };
        taken += 1;
        let again = Stats::from_words(&row.to_words(), Convention::FP16, exponent).expect("a row");
        assert_eq!((row.counts(), row.bins()), (again.counts(), again.bins()));
        if let Ok(choice) = Exact::FP16.decide(&row) {
            assert!((-152..=101).contains(&choice.k));
        }
        assert!(row.flushed_at(exponent).is_none_or(|rate| rate.part <= rate.whole));
        assert!(row.headroom_above().is_none_or(|room| room > -1000 && room < 1000));
    }
    println!("rows: of {count} inputs {taken} were read, {} refused", count - taken);
    assert!(taken > count / 10 && taken < count - count / 10);
}

/// A tiny training: two layers, some steps.
fn tiny(method: &str) -> (Linear, Trainer<Cpu>) {
    let mut parameters = Parameters::seeded(1);
    let [one, two] = ["a", "b"].map(|name| Linear::new(&mut parameters.at(name), 2, 2));
    let method: Method = method.parse().expect("a method");
    let device = Cpu::new(1).expect("a thread");
    let mut trainer =
        Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.1) }, method).expect("a trainer");
    trainer.observe(Observation::Rows(Detail::Full));
    trainer.observe(Observation::Operands);
    for _ in 0..2 {
        let batch = [Input::f32([2, 2], &[0.5, -1.0, 2.0, 0.25]), Input::u8([2], &[0, 1])];
        let loss = trainer.backward(batch, |[x, y]| two.forward(one.forward(x)).cross_entropy(y));
        assert!(trainer.step(loss.expect("gradients")).expect("a step").skipped.is_none());
    }
    (one, trainer)
}

fn step(net: &Linear, trainer: &mut Trainer<Cpu>) {
    let batch = [Input::f32([2, 2], &[0.5, -1.0, 2.0, 0.25]), Input::u8([2], &[0, 1])];
    // Scales out of a mutated file may make it skip.
    if let Ok(gradients) = trainer.backward(batch, |[x, y]| net.forward(x).relu().cross_entropy(y)) {
        trainer.step(gradients).ok();
    }
}

/// Returns the bytes with a valid checksum, so that damage reaches the parser.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len().saturating_sub(4)];
    [body, &crc32c::crc32c(body).to_le_bytes()].concat()
}

fn checkpoints() {
    let files: Vec<Vec<u8>> = ["gs", "gs:paper", "dynamic:2", "fixed:8"]
        .iter()
        .map(|method| {
            let metadata = BTreeMap::from([("position".to_owned(), "17".to_owned())]);
            tiny(method).1.save(&metadata).expect("a checkpoint")
        })
        .collect();
    let examples: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let words =
        [&NUMBERS[..], &["{", "}", "\\\"", "null", "\"F16\"", "true", "[", "\\\"alpha\\\":-2147483648,", "2147483647"]]
            .concat();
    fuzz("checkpoint metadata", MILLION, &examples, &words, |bytes| {
        checkpoint_metadata(&sealed(bytes)).is_ok_and(|metadata| !metadata.contains_key("gradscale"))
    });
    // Changes numbers only inside our own part of the header, so that the container stays valid.
    let mut random = Numbers(5);
    let (mut taken, mut refused) = (0, 0);
    for (method, file) in ["gs", "gs:paper", "dynamic:2", "fixed:8"].iter().zip(&files) {
        let (mut net, mut trainer) = tiny(method);
        let before = trainer.save(&BTreeMap::new()).expect("a checkpoint");
        let size = u64::from_le_bytes(file[..8].try_into().expect("eight bytes"));
        let end = 8 + usize::try_from(size).expect("a small header");
        for _ in 0..some_of(25_000) {
            let mut bytes = file.clone();
            for _ in 0..=random.below(2) {
                let digits: Vec<usize> =
                    (8..end).filter(|&i| bytes[i].is_ascii_digit() || random.below(40) == 0).collect();
                let at = digits[random.below(digits.len())];
                bytes[at] = b"0123456789-.eE,\"{}[] nul"[random.below(24)];
            }
            if trainer.load(&sealed(&bytes)).is_ok() {
                taken += 1;
                step(&net, &mut trainer);
                (net, trainer) = tiny(method);
            } else {
                refused += 1;
                assert!(refused % 16 != 0 || trainer.save(&BTreeMap::new()).expect("a checkpoint") == before);
            }
        }
    }
    println!("checkpoints: of {} headers {taken} were taken, {refused} refused", taken + refused);
    assert!(taken > some_of(1000) && refused > some_of(50_000));
}

fn traces() {
    let lines: Vec<Vec<u8>> = ["gs", "gs:paper"]
        .iter()
        .map(|method| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("trace");
            let mut trace = trace::Writer::create(&path).expect("a file");
            let (_, trainer, ..) = &tiny(method);
            trace.push(1, false, None, trainer.sites(), trainer.operands()).expect("a line");
            fs::read(&path).expect("a trace")
        })
        .collect();
    let examples: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
    let words = [
        &NUMBERS[..],
        &["{", "}", "[", "]", "null", "\"dy\":null,", "\"exponent\":2147483647,", "1e300", "\"\"", "\"rule\""],
    ]
    .concat();
    let rules = ["gs", "gs:paper", "gs:paper-literal", "gs:authors", "dynamic:2", "logmax", "delayed", "fixed:1024"];
    let rules: Vec<Method> = rules.iter().map(|rule| rule.parse().expect("a method")).collect();
    fuzz("trace lines", MILLION, &examples, &words, |bytes| {
        let Ok(steps) = trace::parse(bytes) else { return false };
        // A trace that can be read can be replayed.
        let rule = &rules[bytes.len() % rules.len()];
        if let Ok((table, lines)) = replay::play("x", rule.scaling.clone(), &steps) {
            assert!(table.starts_with("x: ") && lines.ends_with(b"\n"));
        }
        true
    });
}

/// Returns the peaks of used and of reserved memory so far, in MiB.
fn peaks() -> Option<[u64; 2]> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let peak = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? / 1024)
    };
    Some([peak("VmHWM:")?, peak("VmPeak:")?])
}

/// The parsers run one after the other, because their allocations are counted together.
#[test]
fn parsers_read_or_refuse() {
    // Memory that a process has in any case: a second thread with its arena, and code pages.
    thread::scope(|scope| scope.spawn(|| tiny("gs")).join().map(drop)).expect("no panic");
    let before = peaks();
    for parser in [methods, optimizers::texts, configuration, tables, rows, checkpoints, traces] {
        let start = std::time::Instant::now();
        parser();
        println!("{:.1} s", start.elapsed().as_secs_f64());
    }
    match before.zip(peaks()) {
        Some(([touched, asked], [touched_after, asked_after])) => {
            println!("memory: {touched} to {touched_after} MiB touched, {asked} to {asked_after} MiB asked for");
            assert!(touched_after - touched < 32, "an input of a few bytes took megabytes");
            // Threads reserve 64 MiB each, and use little of it.
            assert!(asked_after - asked < 1024, "an input of a few bytes asked for a gigabyte");
        }
        None => println!("SKIPPED: this system does not tell peaks of memory; Linux does"),
    }
}
