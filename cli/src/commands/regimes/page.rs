//! `report.html`: the table, and exponents over time.

use super::{
    Regime,
    figure::Figure,
    results::{Cell, Results},
    table::{LEGEND, circumstances, in_short, losses, scales, score, sentences},
};
use crate::{
    record::Spread,
    report::{
        axis::{Axis, Unit},
        page::{arguments, card, details, grid, legend, page, section},
        plot::{Plot, RowPlot},
        series::{extent, raw},
        text::escape,
    },
};

/// Returns the HTML page about all regimes.
pub fn html(results: &Results<'_>) -> String {
    let called = arguments(&results.origin, &results.arguments);
    let trained =
        if results.rows.is_empty() { Vec::new() } else { vec![verdict(results), numbers(results), exponents(results)] };
    let sections: Vec<String> = trained.into_iter().chain(figures(results)).chain([called]).collect();
    page("Scaling rules in hard regimes", &sections)
}

/// Returns the methods of a results page, each with the CSS class of its colour.
fn coloured<'a>(results: &'a Results<'_>) -> Vec<(String, &'a str)> {
    results.methods().into_iter().enumerate().map(|(i, method)| (format!("m{}", i % 8), method)).collect()
}

/// Returns the HTML section of the drawn figures, or `None` without any.
fn figures(results: &Results<'_>) -> Option<String> {
    let one = |figure: &Figure| {
        format!("<h3>{}</h3>\n<p>{}</p>\n<pre>{}</pre>\n", figure.name, escape(figure.about), escape(&figure.text))
    };
    let all: String = results.figures.iter().map(one).collect();
    (!all.is_empty()).then(|| section("figures", "Figures", "Computed, without a training.", &all))
}

/// Renders the first screen: a sentence, the scores of a regime in which a method is behind, and its exponents.
fn verdict(results: &Results<'_>) -> String {
    let item = |(method, summary): &(String, String)| {
        format!("<li><b>{}:</b> {}</li>\n", escape(method), escape(summary).replace(" %", "&nbsp;%"))
    };
    let items: String = sentences(results).iter().map(item).collect();
    let how = escape(&circumstances(results));
    let list = format!("<ul class=\"verdict\">\n{items}</ul>\n");
    let shown = results.done().find(|regime| results.is_any_behind(regime)).or_else(|| results.done().next());
    let cards: Vec<String> = shown.map_or_else(Vec::new, |regime| {
        let name = escape(&regime.name);
        let score = format!("<b>{name}</b>: {}", escape(regime.task.score()));
        let scale = format!("<b>{name}</b>: scale 2<sup>α</sup> nearest the loss, first seed");
        vec![card(&score, &bars(results, regime)), card(&scale, &over_time(results, regime))]
    });
    format!(
        "<section id=\"verdict\">\n<p class=\"headline\">{}</p>\n{}<p class=\"how\">{how}</p>\n{}</section>\n",
        escape(&in_short(results)),
        grid("first", &cards),
        details("Each method over all regimes", false, &list)
    )
}

/// Draws the mean score of each method in a regime with its standard deviation, and the score of each seed as a dot.
fn bars(results: &Results<'_>, regime: &Regime) -> String {
    let cells: Vec<_> = coloured(results)
        .into_iter()
        .filter_map(|(class, method)| Some((class, method, results.cell(regime, method)?.scores())))
        .collect();
    let (_, high) = extent(cells.iter().flat_map(|(_, _, scores)| scores.iter().copied()));
    let names: Vec<&str> = cells.iter().map(|(_, method, _)| *method).collect();
    let mut rows = RowPlot::new(&names, Axis::new(Unit::Plain, 0.0, 1.08 * high), "%");
    for (i, (class, method, scores)) in cells.iter().enumerate() {
        let y = rows.y(i);
        if let Some(Spread { mean, deviation }) = Spread::new(scores) {
            let spread = deviation.unwrap_or(0.0);
            let (from, to) = ((rows.x.from, y - rows.half()), (rows.x.at(mean), y + rows.half()));
            rows.svg.rect(&format!("bar {class}"), from, to, &format!("{method}: {mean:.1} ± {spread:.1}"));
            rows.svg.line("join", (rows.x.at(mean - spread), y), (rows.x.at(mean + spread), y));
            rows.svg.text("row", (rows.x.from + 5.0, y + 3.8), &format!("{mean:.1}"));
        }
        for score in scores {
            rows.svg.dot(&format!("fill {class}"), (rows.x.at(*score), y), 3.5, "");
        }
    }
    rows.svg.finish(&format!("Scores in the regime {}, by method", regime.name))
}

fn numbers(results: &Results<'_>) -> String {
    let methods = coloured(results);
    let head = |(class, method): &(String, &str)| {
        format!("<th scope=\"col\" class=\"{class}\"><i></i>{}</th>", escape(method))
    };
    let heads: String = methods.iter().map(head).collect();
    let cell = |cell: Cell<'_>| {
        let behind = results.behind(cell.regime, cell.method) == Some(true);
        let (class, arrow) = if behind { (" class=\"failure\"", "↓") } else { ("", "") };
        format!(
            "<td{class}>{}{arrow}<br><small>{}</small></td>",
            escape(&score(&cell)),
            escape(&[losses(&cell), scales(&cell).unwrap_or_default()].join(" "))
        )
    };
    let row = |regime: &Regime| {
        let one = |(_, method): &(String, &str)| results.cell(regime, method).map_or_else(|| "<td>–</td>".into(), cell);
        let cells: String = methods.iter().map(one).collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(&regime.name))
    };
    let rows: String = results.done().map(row).collect();
    let failed = results.rows.iter().filter_map(|row| {
        let text = format!("{}, {}, seed {}: {}", row.regime, row.method, row.seed, row.failure.as_ref()?);
        Some(format!("<p class=\"failure\">{}</p>\n", escape(&text)))
    });
    let content = format!(
        "<p class=\"more\">Swipe the table for more methods →</p>\n<div class=\"wide\"><table><thead><tr>\
         <th scope=\"col\">regime</th>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>\n{}",
        failed.collect::<String>()
    );
    section(
        "summary",
        "Scores",
        "",
        &(content + &details("How to read the scores", false, &format!("<p>{LEGEND}</p>"))),
    )
}

fn exponents(results: &Results<'_>) -> String {
    let mut families: Vec<(&str, Vec<&Regime>)> = Vec::new();
    for regime in results.done() {
        match families.last_mut() {
            Some((family, regimes)) if *family == regime.family() => regimes.push(regime),
            _ => families.push((regime.family(), vec![regime])),
        }
    }
    let legend = legend(coloured(results).into_iter().filter(|(_, method)| *method != "fp32"));
    let family = |(at, (name, regimes)): (usize, &(&str, Vec<&Regime>))| {
        let cards: Vec<String> = regimes
            .iter()
            .map(|regime| {
                let caption = format!("<b>{}</b>: {}", escape(&regime.name), escape(&regime.about));
                card(&caption, &over_time(results, regime))
            })
            .collect();
        details(&escape(name), at == 0 || regimes.len() < 4, &grid("cards", &cards))
    };
    let families: String = families.iter().enumerate().map(family).collect();
    let lead = "Exponent α of the scale 2<sup>α</sup> at the cast nearest the loss, after each training step; first \
        seed. Long trainings show the minimum and maximum of each interval.";
    section("scales", "Exponents over time", lead, &(legend + &families))
}

fn over_time(results: &Results<'_>, regime: &Regime) -> String {
    let lines: Vec<_> = coloured(results)
        .into_iter()
        .filter_map(|(class, method)| Some((class, results.cell(regime, method)?.rows.first()?.exponents.as_slice())))
        .filter(|(_, exponents)| !exponents.is_empty())
        .collect();
    let (low, high) = extent(lines.iter().flat_map(|(_, exponents)| exponents.iter().copied().map(f64::from)));
    let last = lines.iter().map(|(_, exponents)| exponents.len()).max().unwrap_or(1);
    let (x, y) = (Axis::new(Unit::Plain, 0.0, last as f64), Axis::new(Unit::Power(2), low - 1.0, high + 1.0));
    let mut plot = Plot::new(x, y, "training step", "scale 2^α");
    for (class, exponents) in lines {
        plot.line(&format!("line {class}"), &raw(exponents));
    }
    plot.svg.finish(&format!("Exponents over training steps in the regime {}, by method", regime.name))
}
