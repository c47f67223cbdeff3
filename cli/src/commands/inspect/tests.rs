use super::*;

fn plain(number: &str, format: Name) -> String {
    let text = text(number, format.layout()).expect("a number");
    anstream::adapter::strip_str(&text).to_string()
}

#[test]
fn numbers_are_taken_apart() {
    let one = plain("0x3c00", Name::F16);
    assert!(one.starts_with("0 01111 0000000000   0x3c00\n"), "{one}");
    assert!(one.contains("value       1\n") && one.contains("1024 · 2^-10"), "{one}");
    let six = plain("6.5", Name::F32);
    assert!(six.contains("0 10000001 10100000000000000000000   0x40d00000"), "{six}");
    assert!(plain("-1e-8", Name::F16).contains("flushed to zero"));
    assert!(plain("65520", Name::F16).contains("overflowed; toward zero it is 65504"));
    assert!(plain("65520", Name::F16).contains("inf"));
    assert!(plain("0x7f", Name::E4m3).contains("NaN"));
    assert!(plain("1", Name::Tf32).contains("0 01111111 0000000000   0x1fc00\n"));
}

/// Numbers outside f64's range are neither infinite nor zero.
#[test]
fn numbers_beyond_f64_are_what_they_are() {
    for format in [Name::F16, Name::F32, Name::F64] {
        let (large, small) = (plain("1e400", format), plain("-1e-400", format));
        assert!(large.starts_with("1e400 as binary") && large.contains(": overflowed;"), "{large}");
        assert!(small.contains(": flushed to zero; toward zero it is -0\n"), "{small}");
    }
    assert!(plain("1e400", Name::F64).contains("toward zero it is 1.797693134862315"));
    let large = plain("1e400", Name::F128);
    assert!(large.contains("1e400 as binary128: rounded, to nearest even"), "{large}");
    assert!(large.contains("e399 (rounded to 36 digits)") || large.contains("e400 (rounded to 36 digits)"), "{large}");
    assert!(plain("1e-400", Name::F128).contains("rounded, to nearest even"));
    for far in ["1e99999999999999999999", "123e999999999"] {
        assert!(plain(far, Name::F128).contains("overflowed"), "{far}");
        assert!(plain(&far.replace('e', "e-"), Name::F128).contains("flushed"), "{far}");
        assert!(plain(&format!("0{}", &far[far.find('e').expect("one")..]), Name::F128).contains("exactly"), "{far}");
    }
    assert!(plain("inf", Name::F128).contains("exactly; toward zero it is inf"));
    assert!(plain("-nan", Name::F64).contains("Nan"));
    assert!(plain("inf", Name::E4m3).contains("invalid"));
}

/// f16, f32 and f64 against the casts of `core` and the parsers of the standard library, which round once.
#[test]
fn decimals_are_rounded_once() {
    let mut texts: Vec<String> =
        ["0.1", "1e23", "5e-324", "2.4703282292062328e-324", "65519.99999999999999999999", "-0.0"]
            .map(String::from)
            .to_vec();
    // A midpoint between neighbours with a much later digit, which a cast by way of f64 would lose.
    texts.push("1.00048828125000000000000000000000000000001".to_owned());
    let mut state = 7u64;
    for _ in 0..2000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        texts.push(format!("{}.{}e{}", state >> 60, state & 0xFFFF_FFFF, (state >> 32 & 63) as i32 - 40));
    }
    for text in &texts {
        let number = Number::parse(text).expect("a number");
        let bits = |layout| number.round(layout, Round::NearestEven).0;
        let wide: f64 = text.parse().expect("a number");
        let single: f32 = text.parse().expect("a number");
        assert_eq!(bits(Layout::BINARY64), u128::from(wide.to_bits()), "{text}");
        assert_eq!(bits(Layout::from_format(Format::FP32)), u128::from(single.to_bits()), "{text}");
        let zero = number.round(Layout::from_format(Format::FP16), Round::TowardZero);
        assert_eq!(zero.0, u128::from(Format::FP16.encode_f64(wide, Round::TowardZero).bits), "{text}");
    }
    // A cast to binary16 by way of f64 would give the even neighbour.
    let half = |text: &str| {
        Number::parse(text).expect("a number").round(Layout::from_format(Format::FP16), Round::NearestEven).0
    };
    assert_eq!((half("1.00048828125"), half("1.00048828125000000000000000000000000000001")), (0x3C00, 0x3C01));
}

/// Patterns of glibc's strtof128.
#[test]
fn quadruple_precision_of_another_library() {
    for line in include_str!("f128.tsv").lines() {
        let (text, bits) = line.split_once('\t').expect("two columns");
        let (got, _) = Number::parse(text).expect("a number").round(Layout::BINARY128, Round::NearestEven);
        assert_eq!(format!("{got:032x}"), bits, "{text}");
    }
}

/// Printed values are exact: parsing one gives the same pattern without rounding, or the output marks it as rounded.
#[test]
fn values_are_printed_exactly() {
    for format in [Name::F16, Name::Bf16, Name::E4m3, Name::E5m2] {
        let layout = format.layout();
        for bits in 0..=layout.max_bits() {
            let shown = decimal(&layout.parts(bits));
            let exact = shown.split(' ').next().unwrap_or_default();
            let (again, status) = Number::parse(exact).expect("a number").round(layout, Round::NearestEven);
            assert_eq!(again, bits, "{shown}");
            assert!(status == Status::Exact || shown.ends_with("(rounded to 36 digits)"), "{shown}");
        }
    }
    assert_eq!(decimal(&Layout::BINARY64.parts(0x3FB9_9999_9999_999A)), {
        "0.1000000000000000055511151231257827021181583404541015625"
    });
    assert_eq!(decimal(&Layout::from_format(Format::FP32).parts(0xC248_0000)), "-50");
    assert_eq!(
        decimal(&Layout::BINARY128.parts(1)),
        "6.47517511943802511092443895822764655e-4966 (rounded to 36 digits)"
    );
}

#[test]
fn what_is_no_number_is_said() {
    for number in ["", "x", "0x", "0xzz", "0x10000", "1e", "--1", "0x100000000000000000000000000000000", "1_0", "\u{7}"]
    {
        let error = text(number, Name::F16.layout()).expect_err("no number");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    let error = text("0x1_0000_0000_0000_0000", Name::F64.layout()).expect_err("too long").to_string();
    assert!(error.ends_with("more than the 64 bits of binary64"), "{error}");
    assert!(text(&"9".repeat(100_000), Name::F128.layout()).is_ok());
}
