//! Plots as SVG, by hand: a card of its own colour that follows the viewer's
//! light or dark scheme, so that it can be read on any page.

use std::fmt::Write;

use crate::figures::{Spread, human};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 48.0;

/// Colours that differ in lightness too; the text's follow the scheme.
const STYLE: &str = "
  .card { fill: #ffffff; stroke: #d0d7de }
  text { fill: #24292f; font: 13px system-ui, sans-serif }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 12px }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .whisker { stroke: #24292f; stroke-width: 1.2 }
  .floor { fill: #8c959f; stroke: #8c959f }
  .reference { fill: #d9730d; stroke: #d9730d }
  .ours { fill: #0969da; stroke: #0969da }
  .other { fill: #8250df; stroke: #8250df }
  polyline { fill: none !important; stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #3d444d }
    text { fill: #e6edf3 }
    .grid { stroke: #3d444d }
    .whisker { stroke: #e6edf3 }
    .reference { fill: #f0883e; stroke: #f0883e }
    .ours { fill: #4493f8; stroke: #4493f8 }
    .other { fill: #ab7df8; stroke: #ab7df8 }
  }";

/// One program's values, one for each place on the x axis.
pub struct Series {
    /// Program; chooses the colour.
    pub name: String,
    /// None where it was not measured.
    pub values: Vec<Option<Spread>>,
}

/// Bars beside each other, or lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A bar for each value, with its quartiles.
    Bars,
    /// A line for each series, on a logarithmic axis.
    Lines,
}

/// A plot with named places on the x axis.
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What the y axis counts, beneath the title.
    pub unit: String,
    /// Beneath each place.
    pub places: Vec<String>,
    /// What is shown.
    pub series: Vec<Series>,
    /// How.
    pub shape: Shape,
}

impl Plot {
    /// Whether there is anything to show.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|s| s.values.iter().all(Option::is_none))
    }

    /// The whole SVG file.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        let title = escape(&self.title);
        let _ = writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{title}">
<style>{STYLE}
</style>
<rect class="card" x="0.5" y="0.5" width="{}" height="{}" rx="8"/>
<text class="title" x="20" y="30">{title}</text>
<text class="small" x="20" y="52">{}</text>"#,
            WIDTH - 1.0,
            HEIGHT - 1.0,
            escape(&self.unit)
        );
        let axis = Axis::over(self);
        axis.draw(&mut out);
        self.draw_places(&mut out);
        self.draw_legend(&mut out);
        for (i, series) in self.series.iter().enumerate() {
            match self.shape {
                Shape::Bars => self.draw_bars(&mut out, &axis, i, series),
                Shape::Lines => self.draw_line(&mut out, &axis, series),
            }
        }
        out.push_str("</svg>\n");
        out
    }

    fn slot_width(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.places.len().max(1) as f64
    }

    fn middle(&self, place: usize) -> f64 {
        LEFT + (place as f64 + 0.5) * self.slot_width()
    }

    fn draw_places(&self, out: &mut String) {
        for (i, name) in self.places.iter().enumerate() {
            let _ = writeln!(
                out,
                r#"<text class="small" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                self.middle(i),
                HEIGHT - BOTTOM + 20.0,
                escape(name)
            );
        }
    }

    fn draw_legend(&self, out: &mut String) {
        let mut x = WIDTH - RIGHT;
        for series in self.series.iter().rev() {
            x -= 24.0 + 7.5 * series.name.len() as f64;
            let _ = writeln!(
                out,
                r#"<rect class="{}" x="{x:.1}" y="42" width="12" height="12" rx="2"/><text class="small" x="{:.1}" y="52">{}</text>"#,
                class(&series.name),
                x + 16.0,
                escape(&series.name)
            );
        }
    }

    fn draw_bars(&self, out: &mut String, axis: &Axis, number: usize, series: &Series) {
        let width = self.slot_width() * 0.8 / self.series.len() as f64;
        for (i, spread) in series.values.iter().enumerate() {
            let Some(s) = spread else { continue };
            let x = self.middle(i) + (number as f64 - self.series.len() as f64 / 2.0) * width;
            let top = axis.y(s.median);
            let centre = x + width / 2.0;
            let _ = writeln!(
                out,
                r#"<rect class="{}" x="{:.1}" y="{top:.1}" width="{:.1}" height="{:.1}"/><line class="whisker" x1="{centre:.1}" x2="{centre:.1}" y1="{:.1}" y2="{:.1}"/><text class="small" x="{centre:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                class(&series.name),
                x + 1.0,
                width - 2.0,
                HEIGHT - BOTTOM - top,
                axis.y(s.low),
                axis.y(s.high),
                axis.y(s.high) - 5.0,
                short(s.median),
            );
        }
    }

    fn draw_line(&self, out: &mut String, axis: &Axis, series: &Series) {
        let class = class(&series.name);
        let points: Vec<(f64, f64, f64)> = series
            .values
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.map(|s| (self.middle(i), axis.y(s.median), s.median)))
            .collect();
        let line: Vec<String> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, r#"<polyline class="{class}" points="{}"/>"#, line.join(" "));
        for (x, y, value) in points {
            let _ = writeln!(
                out,
                r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4"><title>{} {}</title></circle>"#,
                escape(&series.name),
                human(value)
            );
        }
        // The last value in figures: where lines differ most.
        if let Some((i, Some(s))) = series.values.iter().enumerate().next_back() {
            let _ = writeln!(
                out,
                r#"<text class="small" x="{:.1}" y="{:.1}">{}</text>"#,
                self.middle(i) + 9.0,
                axis.y(s.median) + 4.0,
                human(s.median)
            );
        }
    }
}

/// Bars have little room.
fn short(x: f64) -> String {
    if x >= 9.95 { format!("{x:.0}") } else { format!("{x:.1}") }
}

/// From values to heights: from 0 for bars, logarithmic for lines.
struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    fn over(plot: &Plot) -> Self {
        let all = || plot.series.iter().flat_map(|s| s.values.iter().flatten());
        let bars = plot.shape == Shape::Bars;
        let value = |s: &Spread| if bars { s.high } else { s.median };
        let most = all().map(value).fold(0.0, f64::max).max(1e-9);
        if bars {
            let step = nice_step(most / 5.0);
            let high = (most * 1.08 / step).ceil() * step;
            let ticks = (0..=(high / step).round() as usize).map(|i| i as f64 * step).collect();
            return Self { low: 0.0, high, ticks, logarithmic: false };
        }
        let least = all().map(|s| s.median).fold(f64::INFINITY, f64::min).max(1e-9);
        let ticks = log_ticks(least, most);
        Self { low: ticks[0], high: ticks[ticks.len() - 1], ticks, logarithmic: true }
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, out: &mut String) {
        for &tick in &self.ticks {
            let y = self.y(tick);
            let _ = writeln!(
                out,
                r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text class="small" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                tick_label(tick)
            );
        }
    }
}

fn tick_label(tick: f64) -> String {
    human(tick).trim_end_matches(".00").trim_end_matches(".0").to_owned()
}

/// 1, 2 or 5 of some power of ten, at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|t| t * power >= rough * 0.999);
    times.unwrap_or(10.0) * power
}

/// 1, 2 and 5 of each power of ten, from below `least` to above `most`.
fn log_ticks(least: f64, most: f64) -> Vec<f64> {
    let first = least.log10().floor() as i32;
    let last = most.log10().ceil() as i32 + 1;
    let all: Vec<f64> =
        (first..=last).flat_map(|p| [1.0, 2.0, 5.0].map(|t| t * 10f64.powi(p))).collect();
    let from = all.iter().rposition(|&t| t <= least * 1.001).unwrap_or(0);
    let to = all.iter().position(|&t| t >= most * 0.999).unwrap_or(all.len() - 1);
    all[from..=to.max(from + 1)].to_vec()
}

fn class(name: &str) -> &str {
    match name {
        "floor" | "reference" | "ours" => name,
        _ => "other",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(value: f64) -> Option<Spread> {
        Some(Spread { low: value, median: value, high: value })
    }

    fn plot(shape: Shape) -> Plot {
        Plot {
            title: "a <b>".into(),
            unit: "µs".into(),
            places: vec!["x".into(), "y".into()],
            series: vec![Series { name: "ours".into(), values: vec![flat(4.0), None] }],
            shape,
        }
    }

    #[test]
    fn an_svg_shows_what_it_has_and_escapes_text() {
        for shape in [Shape::Bars, Shape::Lines] {
            let svg = plot(shape).svg();
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(svg.contains("a &lt;b>"));
            assert!(svg.contains(r#"class="ours""#));
            assert!(!svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn ticks_enclose_the_values() {
        assert_eq!(log_ticks(30.0, 400.0), [20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(log_ticks(10.0, 10.0), [10.0, 20.0]);
        assert_eq!(nice_step(0.7), 1.0);
        assert_eq!(nice_step(6.0), 10.0);
        assert_eq!(nice_step(12.0), 20.0);
    }
}
