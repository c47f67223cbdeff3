//! Section of test samples with labels and predictions.

use super::{
    Report,
    page::{card, grid, section},
    png,
    text::escape,
};
use crate::{
    drawing::framed,
    tasks::{BoxedSample, Dataset, DetectedBox, GeneratedImages, Samples, Transcript, colour},
};

/// Returns the HTML section of the report that shows samples of the test data.
pub fn section_of(report: &Report<'_>, data: &dyn Dataset) -> String {
    let (title, lead, content) = match data.samples() {
        Samples::Nothing => return String::new(),
        Samples::Pixels { size, classes, palette, images } => {
            let lead =
                "Test images, their labels, and the predictions of each method’s first seed. Black is unlabelled.";
            ("Sample images", lead, legend(&classes) + &pixels(report, size, &palette, &images))
        }
        Samples::Images { size, names, images } => (
            "Sample images",
            "Test images, their classes, and the predictions of each method’s first seed.",
            whole(report, size, &names, &images),
        ),
        Samples::Texts(recordings) => (
            "Transcripts",
            "Test recordings, their transcripts, and those by each method’s first seed: the likeliest text, and the \
             likeliest alignment where its text differs.",
            texts(report, ["recording", "said"], &recordings, true),
        ),
        Samples::Sentences(pairs) => (
            "Translations",
            "Test sentences, human translations, and those by each method’s first seed: by beam search, and in \
             brackets by greedy search where that differs.",
            texts(report, ["source", "reference"], &pairs, false),
        ),
        Samples::Made { size, real } => (
            "Generated images",
            "Real test images, and the images that each method’s first seed generates from the same noise. Nearness is \
             1 − their Fréchet distance / that of a constant mean image; variety is the variance of their pixels as a \
             share of the real images’.",
            made(report, size, &real),
        ),
        Samples::Continued(texts) => (
            "Generated text",
            "Beginnings of test texts, their continuations, and those by each method’s first seed, sampled at a \
             temperature of 0.8.",
            written(report, &texts),
        ),
        Samples::Boxes { names, images } => {
            let coloured: Vec<_> = names.into_iter().enumerate().map(|(i, name)| (name, colour(i))).collect();
            let lead = "Test images with the true boxes, and with the boxes of at least 30 % confidence by each \
                method’s first seed.";
            ("Sample images", lead, legend(&coloured) + &boxed(report, &images))
        }
    };
    section("samples", title, lead, &content)
}

/// Returns the predictions of a method's first seed that has any.
fn predicted<'a>(report: &'a Report<'_>, method: &str) -> Option<&'a [u32]> {
    report.runs_of(method).map(|run| run.samples.classes()).find(|samples| !samples.is_empty())
}

fn picture(address: Option<String>, caption: &str, name: &str) -> String {
    let name = escape(name);
    address.map_or_else(String::new, |address| card(caption, &format!("<img src=\"{address}\" alt=\"{name}\">")))
}

fn legend(classes: &[(String, [u8; 3])]) -> String {
    let class = |(name, [r, g, b]): &(String, [u8; 3])| {
        format!("<li><i style=\"background:rgb({r},{g},{b})\"></i>{}</li>", escape(name))
    };
    format!("<ul class=\"legend\">{}</ul>\n", classes.iter().map(class).collect::<String>())
}

fn pixels(report: &Report<'_>, size: [usize; 2], palette: &[[u8; 3]], images: &[[Option<Vec<u8>>; 2]]) -> String {
    let pixels = size[0] * size[1];
    let plain = |address, name: &str| picture(address, &escape(name), name);
    let mut content = String::new();
    for (i, [image, labels]) in images.iter().enumerate() {
        content += "<div class=\"sample\">";
        content += &plain(image.as_ref().and_then(|image| png::colours(image, size)), "image");
        content += &plain(labels.as_ref().and_then(|labels| png::classes(labels, size, palette)), "truth");
        for method in &report.methods {
            let classes = predicted(report, method).and_then(|samples| samples.get(i * pixels..(i + 1) * pixels));
            // A class of a pixel is a byte.
            let bytes = |classes: &[u32]| classes.iter().map(|&class| u8::try_from(class).unwrap_or(u8::MAX)).collect();
            let classes: Option<Vec<u8>> = classes.map(bytes);
            content += &plain(classes.and_then(|classes| png::classes(&classes, size, palette)), method);
        }
        content += "</div>\n";
    }
    content
}

/// Renders images with their true and detected boxes as HTML.
fn boxed(report: &Report<'_>, images: &[BoxedSample]) -> String {
    let mut content = String::new();
    for (i, BoxedSample { name, size, pixels, truths }) in images.iter().enumerate() {
        let Some(pixels) = pixels else { continue };
        let with = |boxes: &[DetectedBox]| png::colours(&framed(pixels, *size, boxes, colour), *size);
        content += "<div class=\"sample\">";
        content += &picture(with(truths), &format!("{}: truth", escape(name)), name);
        for method in &report.methods {
            let mut found = report.runs_of(method).filter_map(|run| run.samples.boxes().get(i));
            content += &picture(found.next().and_then(|found| with(found)), &escape(method), method);
        }
        content += "</div>\n";
    }
    content
}

/// Renders images with one true class each as HTML.
fn whole(report: &Report<'_>, size: [usize; 2], names: &[String], images: &[(Option<Vec<u8>>, u32)]) -> String {
    let name = |class: u32| names.get(class as usize).map_or("?", String::as_str);
    let mut content = "<div class=\"sample\">".to_owned();
    for (i, (pixels, truth)) in images.iter().enumerate() {
        let Some(pixels) = pixels else { continue };
        let mut caption = format!("<b>{}</b>", escape(name(*truth)));
        for (method, class) in report.coloured() {
            if let Some(taken) = predicted(report, method).and_then(|samples| samples.get(i)) {
                let (mark, method) = (if taken == truth { "" } else { " ✗" }, escape(method));
                caption +=
                    &format!("<br><span class=\"{class}\"><i></i>{method}: {}{mark}</span>", escape(name(*taken)));
            }
        }
        content += &picture(png::colours(pixels, size), &caption, name(*truth));
    }
    content + "</div>\n"
}

/// Renders real images and those of each method in one row as HTML.
fn made(report: &Report<'_>, size: [usize; 2], real: &[u8]) -> String {
    let tiled = |made: &GeneratedImages| {
        let tiles = made.tiled();
        png::colours(&tiles.pixels, tiles.size)
    };
    let real = GeneratedImages { size, pixels: real.to_vec() };
    let mut content = "<div class=\"sample\">".to_owned() + &picture(tiled(&real), "<b>real</b>", "real");
    for (method, class) in report.coloured() {
        if let Some(made) = report.runs_of(method).find_map(|run| run.samples.made()) {
            let caption = format!("<span class=\"{class}\"><i></i>{}</span>", escape(method));
            content += &picture(tiled(made), &caption, method);
        }
    }
    content + "</div>\n"
}

/// Renders generated texts: a card for each beginning.
fn written(report: &Report<'_>, texts: &[[String; 2]]) -> String {
    let lines = |text: &str| text.lines().map(escape).collect::<Vec<_>>().join("<br>");
    let one = |(i, [begins, goes_on]): (usize, &[String; 2])| {
        let mut content = format!("<p><b>text</b><br>{}</p>", lines(goes_on));
        for (method, class) in report.coloured() {
            let texts = report.runs_of(method).map(|run| run.samples.texts()).find(|texts| !texts.is_empty());
            if let Some(Transcript { text, .. }) = texts.and_then(|texts| texts.get(i)) {
                let name = format!("<span class=\"{class}\"><i></i><b>{}</b></span>", escape(method));
                content += &format!("<p>{name}<br>{}</p>", lines(text));
            }
        }
        card(&format!("{} …", lines(begins)), &content)
    };
    grid("cards", &texts.iter().enumerate().map(one).collect::<Vec<_>>())
}

/// Renders recordings or sentences, one row each, with a column per method. `marked` highlights wrong texts.
fn texts(report: &Report<'_>, heads: [&str; 2], rows: &[[String; 2]], marked: bool) -> String {
    let texts = |method: &str| {
        report.runs_of(method).map(|run| run.samples.texts()).find(|texts| !texts.is_empty()).unwrap_or_default()
    };
    let methods: Vec<(&str, String, &[Transcript])> =
        report.coloured().map(|(method, class)| (method, class, texts(method))).collect();
    let head = |(method, class, _): &(&str, String, _)| {
        format!("<th scope=\"col\"><span class=\"{class}\"><i></i>{}</span></th>", escape(method))
    };
    let mut content = "<div class=\"wide said\"><table><thead><tr>".to_owned();
    content += &heads.map(|head| format!("<th scope=\"col\">{head}</th>")).concat();
    content += &(methods.iter().map(head).collect::<String>() + "</tr></thead><tbody>\n");
    for (i, [name, said]) in rows.iter().enumerate() {
        content += &format!("<tr><th scope=\"row\">{}</th><td>{}</td>", escape(name), escape(said));
        for (_, _, texts) in &methods {
            let cell = texts.get(i).map_or_else(String::new, |Transcript { text, greedy }| {
                let mark = if text == said || !marked { "" } else { " ✗" };
                let other = if greedy == text { String::new() } else { format!(" ({})", escape(greedy)) };
                format!("{}{other}{mark}", if text.is_empty() { "–".to_owned() } else { escape(text) })
            });
            content += &format!("<td>{cell}</td>");
        }
        content += "</tr>\n";
    }
    content + "</tbody></table></div>\n"
}
