//! Draws the figures of the page as SVG with plotters: bars or lines over named
//! places, in colours that follow the reader's light or dark scheme.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Result;
use crate::figures::{Spread, human};

const SIZE: (u32, u32) = (760, 400);
const CARD: RGBColor = RGBColor(0xff, 0xff, 0xff);
const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const GRID: RGBColor = RGBColor(0xd0, 0xd7, 0xde);

/// The position of a text relative to its point.
const ABOVE: Pos = Pos { h_pos: HPos::Center, v_pos: VPos::Bottom };
const BELOW: Pos = Pos { h_pos: HPos::Center, v_pos: VPos::Top };
const BEFORE: Pos = Pos { h_pos: HPos::Right, v_pos: VPos::Center };
const BESIDE: Pos = Pos { h_pos: HPos::Left, v_pos: VPos::Center };

/// plotters writes colours as attributes, which a style sheet overrides.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {
[fill='#FFFFFF'] { fill: #161b22 } [fill='#24292F'] { fill: #e6edf3 }
[stroke='#24292F'] { stroke: #e6edf3 } [stroke='#D0D7DE'] { stroke: #3d444d }
}</style>
";

/// One program's values, one for each place on the x axis.
pub struct Series {
    /// The program, which determines the colour.
    pub name: String,
    /// `None` where nothing was measured.
    pub values: Vec<Option<Spread>>,
}

/// Bars side by side, or lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A bar for each value, with its interval.
    Bars,
    /// A line for each series, on a logarithmic axis.
    Lines,
}

/// A plot with named places on the x axis.
pub struct Plot {
    /// Shown above the plot.
    pub title: String,
    /// What the y axis shows, beneath the title.
    pub unit: String,
    /// Beneath each place.
    pub places: Vec<String>,
    /// What is shown.
    pub series: Vec<Series>,
    /// How it is drawn.
    pub shape: Shape,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;
type Drawn = std::result::Result<(), DrawError>;

impl Plot {
    /// Whether there is anything to show.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|s| s.values.iter().all(Option::is_none))
    }

    /// The whole SVG file.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text.replacen(">\n", &format!(">\n{DARK}"), 1))
    }

    fn draw(&self, root: &Area) -> Drawn {
        let corners = [(0, 0), (SIZE.0 as i32 - 1, SIZE.1 as i32 - 1)];
        root.draw(&Rectangle::new(corners, CARD.filled()))?;
        root.draw(&Rectangle::new(corners, GRID))?;
        let title = ink(20);
        root.draw(&Text::new(self.title.as_str(), (20, 14), title))?;
        root.draw(&Text::new(self.unit.as_str(), (20, 42), ink(15)))?;
        self.draw_legend(root)?;
        let mut chart = self.chart(root)?;
        for (number, series) in self.series.iter().enumerate() {
            match self.shape {
                Shape::Bars => self.draw_bars(&mut chart, number, series)?,
                Shape::Lines => self.draw_line(&mut chart, series)?,
            }
        }
        root.present()
    }

    /// The axes: places at whole numbers from 0 on, and [`Plot::height`].
    fn chart<'a, 'b>(&self, root: &'a Area<'b>) -> std::result::Result<Chart<'a, 'b>, DrawError> {
        let (left, right) = (-0.5, self.places.len() as f64 - 0.5);
        let ticks = self.ticks();
        let bottom = self.height(ticks[0]);
        let top = self.height(ticks[ticks.len() - 1]);
        let mut chart = ChartBuilder::on(root)
            .margin_top(76)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, bottom..top)?;
        for tick in ticks {
            let at = self.height(tick);
            chart.draw_series([PathElement::new([(left, at), (right, at)], GRID)])?;
            let text = Text::new(tick_label(tick), (-8, 0), ink(15).pos(BEFORE));
            chart.plotting_area().draw(&(EmptyElement::at((left, at)) + text))?;
        }
        for (place, name) in self.places.iter().enumerate() {
            let text = Text::new(name.clone(), (0, 10), ink(15).pos(BELOW));
            chart.plotting_area().draw(&(EmptyElement::at((place as f64, bottom)) + text))?;
        }
        Ok(chart)
    }

    /// Where a value is on the y axis.
    fn height(&self, value: f64) -> f64 {
        if self.shape == Shape::Lines { value.max(1e-9).log10() } else { value }
    }

    fn draw_legend(&self, root: &Area) -> Drawn {
        let mut x = SIZE.0 as i32 - 24;
        for series in self.series.iter().rev() {
            x -= 26 + 8 * series.name.len() as i32;
            let square = [(x, 44), (x + 11, 55)];
            root.draw(&Rectangle::new(square, colour(&series.name).filled()))?;
            root.draw(&Text::new(series.name.as_str(), (x + 16, 42), ink(15)))?;
        }
        Ok(())
    }

    fn draw_bars(&self, chart: &mut Chart, number: usize, series: &Series) -> Drawn {
        let width = 0.8 / self.series.len() as f64;
        let left = number as f64 * width - 0.4;
        for (place, spread) in present(series) {
            let (from, to) = (place + left, place + left + width * 0.97);
            let centre = (from + to) / 2.0;
            let bar =
                Rectangle::new([(from, 0.0), (to, spread.median)], colour(&series.name).filled());
            let whisker = PathElement::new([(centre, spread.low), (centre, spread.high)], INK);
            chart.draw_series([bar.into_dyn(), whisker.into_dyn()])?;
            let text = Text::new(short(spread.median), (0, -3), ink(15).pos(ABOVE));
            chart.draw_series([EmptyElement::at((centre, spread.high)) + text])?;
        }
        Ok(())
    }

    fn draw_line(&self, chart: &mut Chart, series: &Series) -> Drawn {
        let colour = colour(&series.name);
        let points: Vec<(f64, f64)> =
            present(series).map(|(place, spread)| (place, self.height(spread.median))).collect();
        chart.draw_series([PathElement::new(points.clone(), colour.stroke_width(2))])?;
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?;
        // A single line has room for a label with its last value.
        let last = present(series).last().filter(|_| self.series.len() == 1);
        if let Some((place, last)) = last {
            let text = Text::new(human(last.median), (9, 0), ink(15).pos(BESIDE));
            chart.draw_series([EmptyElement::at((place, self.height(last.median))) + text])?;
        }
        Ok(())
    }

    /// The values of the grid lines: from 0 for bars, powers of ten for lines.
    fn ticks(&self) -> Vec<f64> {
        let all = || self.series.iter().flat_map(|s| s.values.iter().flatten());
        if self.shape == Shape::Lines {
            let least = all().map(|s| s.median).fold(f64::INFINITY, f64::min).max(1e-9);
            let most = all().map(|s| s.median).fold(1e-9, f64::max);
            return log_ticks(least.min(most), most);
        }
        let most = all().map(|s| s.high).fold(1e-9, f64::max);
        let step = nice_step(most / 5.0);
        let count = (most * 1.08 / step).ceil() as usize;
        (0..=count).map(|i| i as f64 * step).collect()
    }
}

/// The places that have a value.
fn present(series: &Series) -> impl Iterator<Item = (f64, Spread)> {
    series.values.iter().enumerate().filter_map(|(place, spread)| Some((place as f64, (*spread)?)))
}

fn ink(size: u32) -> TextStyle<'static> {
    ("system-ui, sans-serif", size).into_font().color(&INK)
}

/// Colours that differ in lightness too, readable on light and dark.
fn colour(name: &str) -> RGBColor {
    match name {
        "floor" => RGBColor(0x8c, 0x95, 0x9f),
        "reference" => RGBColor(0xd9, 0x73, 0x0d),
        "ours" => RGBColor(0x21, 0x7a, 0xe0),
        _ => RGBColor(0x82, 0x50, 0xdf),
    }
}

/// Bars have little room.
fn short(x: f64) -> String {
    if x >= 9.95 { format!("{x:.0}") } else { format!("{x:.1}") }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(value: f64) -> Option<Spread> {
        Some(Spread { low: value, median: value, high: value })
    }

    #[test]
    fn svg_shows_values_and_escapes_text() {
        for shape in [Shape::Bars, Shape::Lines] {
            let plot = Plot {
                title: "a <b>".into(),
                unit: "µs".into(),
                places: vec!["x".into(), "y".into()],
                series: vec![Series { name: "ours".into(), values: vec![flat(4.0), None] }],
                shape,
            };
            let svg = plot.svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            assert!(svg.contains("a &lt;b"), "{svg}");
            assert!(svg.contains("prefers-color-scheme"));
            assert!(svg.contains("#217AE0"), "the colour of ours");
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
