//! One plot as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::target::BenchError;

/// Colours of stores, in their order (Okabe and Ito: told apart by the colour-blind too). Marks
/// differ as well.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// Lines behind the plot.
const RULE: RGBColor = RGBColor(205, 205, 205);
const RULE_LIGHT: RGBColor = RGBColor(238, 238, 238);
/// More points than that are not marked.
const MARKS_MAX: usize = 24;

/// What stands on the axes.
#[derive(Clone, Debug)]
pub struct Axes<'a> {
    /// Above the plot.
    pub title: String,
    /// Below it: what the x axis counts.
    pub x: &'a str,
    /// Left of it: what the y axis counts.
    pub y: &'a str,
    /// Names of the places on the x axis; without any they are numbers.
    pub places: Vec<String>,
    /// Powers of ten are as far from one another, so that small and large figures are seen.
    pub is_logarithmic: bool,
    /// Width and height, in pixels.
    pub size: (u32, u32),
}

/// One store's points: places on the x axis, and figures.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which store: gives it its colour and mark.
    pub store: usize,
    /// In the legend, unless it is empty.
    pub name: String,
    /// In the order of their places.
    pub points: Vec<(i32, f64)>,
}

/// A point that is pointed out: a ring around it, and words beside it.
#[derive(Clone, Debug)]
pub struct Highlight {
    /// As of its [`Line`].
    pub store: usize,
    /// Where.
    pub point: (i32, f64),
    /// What it is.
    pub text: String,
}

/// How many colours of stores there are.
pub const COLOUR_COUNT: usize = COLOURS.len();

/// The mark of a store's points, in words for the legend.
pub fn mark(store: usize) -> &'static str {
    ["●", "▲", "✕"][store % 3]
}

/// Draws it for a page: it takes its colours from the page's style sheet and its width from the
/// place it has there. Colours are `--paper`, `--ink`, `--rule`, `--rule-light` and, of stores,
/// `--store-0` and so on.
///
/// # Errors
/// As [`svg`].
pub fn inline(axes: &Axes<'_>, lines: &[Line], highlights: &[Highlight]) -> Result<String, BenchError> {
    let whole = draw_all(axes, lines, highlights)?;
    let body = whole.split_once('>').map_or("", |(_, body)| body);
    let mut body = body.trim_end().trim_end_matches("</svg>").to_owned();
    let hex = |RGBColor(red, green, blue): RGBColor| format!("\"#{red:02X}{green:02X}{blue:02X}\"");
    let plain = [(WHITE, "--paper".to_owned()), (BLACK, "--ink".into()), (RULE, "--rule".into())];
    let stores = COLOURS.iter().enumerate().map(|(store, colour)| (*colour, format!("--store-{store}")));
    for (colour, name) in plain.into_iter().chain([(RULE_LIGHT, "--rule-light".into())]).chain(stores) {
        // Words have no quotes here: the library writes them as entities.
        body = body.replace(&hex(colour), &format!("\"var({name})\""));
    }
    let (width, height) = axes.size;
    let title = format!("{}: {} by {}", axes.title, axes.y, axes.x);
    let markup = maud::html! {
        svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(title) { (maud::PreEscaped(body)) }
    };
    Ok(markup.into_string())
}

/// Draws it as a file of its own. Of a logarithmic axis, figures that are not above 0 are left out.
///
/// # Errors
/// The plotting library refused.
pub fn svg(axes: &Axes<'_>, lines: &[Line]) -> Result<String, BenchError> {
    draw_all(axes, lines, &[])
}

fn draw_all(axes: &Axes<'_>, lines: &[Line], highlights: &[Highlight]) -> Result<String, BenchError> {
    let mut text = String::new();
    let figures = || lines.iter().flat_map(|line| &line.points).map(|(_, figure)| *figure);
    let top = figures().fold(0.0, f64::max);
    let failed = |error: &dyn std::fmt::Display| BenchError::Wrong(format!("cannot draw `{}`: {error}", axes.title));
    {
        let area = SVGBackend::with_string(&mut text, axes.size).into_drawing_area();
        if axes.is_logarithmic {
            let above = |figure: &f64| *figure > 0.0;
            let least = figures().filter(above).fold(f64::INFINITY, f64::min);
            let range = match top > 0.0 {
                // Whole powers of ten, and never none.
                true => 10f64.powf(least.log10().floor())..10f64.powf((top * 1.001).log10().ceil()),
                false => 1.0..10.0,
            };
            draw(&area, axes, range.log_scale(), (lines, highlights)).map_err(|error| failed(&error))?;
        } else {
            let top = if top > 0.0 { top * 1.1 } else { 1.0 };
            draw(&area, axes, 0.0..top, (lines, highlights)).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw<Y>(
    area: &Area<'_>,
    axes: &Axes<'_>,
    y: Y,
    (lines, highlights): (&[Line], &[Highlight]),
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>
where
    Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let last = lines.iter().flat_map(|line| &line.points).map(|(place, _)| *place).max().unwrap_or_default();
    let x = if axes.places.is_empty() { 0..last.max(1) } else { -1..axes.places.len() as i32 };
    let mut chart = ChartBuilder::on(area)
        .caption(&axes.title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let place = |place: &i32| match usize::try_from(*place) {
        Ok(index) if !axes.places.is_empty() => axes.places.get(index).cloned().unwrap_or_default(),
        Ok(number) => number.to_string(),
        Err(_) => String::new(),
    };
    let labels = if axes.places.is_empty() { 10 } else { axes.places.len() + 2 };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RULE_LIGHT)
        .bold_line_style(RULE)
        .x_labels(labels)
        .x_label_formatter(&place)
        .y_label_formatter(&|figure| short(*figure))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .label_style(("sans-serif", 12))
        .draw()?;
    for line in lines {
        let colour = COLOURS[line.store % COLOURS.len()];
        let shown = |(_, figure): &&(i32, f64)| !axes.is_logarithmic || *figure > 0.0;
        let points: Vec<(i32, f64)> = line.points.iter().filter(shown).copied().collect();
        let drawn = chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        if !line.name.is_empty() {
            let sample = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            drawn.label(&line.name).legend(sample);
        }
        if points.len() > MARKS_MAX {
            continue;
        }
        match line.store % 3 {
            0 => chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?,
            1 => chart.draw_series(points.iter().map(|point| TriangleMarker::new(*point, 5, colour.filled())))?,
            _ => chart.draw_series(points.iter().map(|point| Cross::new(*point, 4, colour.stroke_width(2))))?,
        };
    }
    for one in highlights {
        let ring = COLOURS[one.store % COLOURS.len()].stroke_width(2);
        chart.draw_series([Circle::new(one.point, 6, ring)])?;
        // To the side that has more room.
        let is_right = one.point.0 * 2 > last;
        let anchor = if is_right { HPos::Right } else { HPos::Left };
        let style = ("sans-serif", 12).into_text_style(area).pos(Pos::new(anchor, VPos::Top));
        let offset = (if is_right { -8 } else { 8 }, 4);
        chart.draw_series([EmptyElement::at(one.point) + Text::new(one.text.clone(), offset, style)])?;
    }
    if lines.iter().any(|line| !line.name.is_empty()) {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 12))
            .draw()?;
    }
    Ok(())
}

/// A figure at an axis: `0.5`, `20`, `130 K`, `2 M`.
pub fn short(figure: f64) -> String {
    let (figure, unit) = match figure.abs() {
        f if f >= 1e9 => (figure / 1e9, " G"),
        f if f >= 1e6 => (figure / 1e6, " M"),
        f if f >= 1e3 => (figure / 1e3, " K"),
        _ => (figure, ""),
    };
    // As many digits as tell neighbours apart.
    let text = format!("{figure:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(places: &[&str], is_logarithmic: bool) -> Axes<'static> {
        let places = places.iter().map(|place| (*place).to_owned()).collect();
        Axes { title: "Puts <here>".into(), x: "value", y: "MB/s", places, is_logarithmic, size: (400, 300) }
    }

    #[test]
    fn every_store_has_its_line_and_its_marks() {
        let lines = [
            Line { store: 0, name: String::new(), points: vec![(0, 10.0), (1, 200.0)] },
            Line { store: 1, name: String::new(), points: vec![(0, 20.0), (1, 100.0)] },
            Line { store: 2, name: String::new(), points: vec![(1, 50.0)] },
        ];
        for is_logarithmic in [true, false] {
            let text = svg(&axes(&["64 B", "256 B"], is_logarithmic), &lines).expect("a plot");
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
            assert_eq!(text.matches("<circle").count(), 2, "{text}");
            assert_eq!(text.matches("<polygon").count(), 2, "{text}");
            assert!(text.matches("<polyline").count() >= 2 && text.contains("64 B") && text.contains("256 B"));
            assert!(text.contains("Puts &lt;here&gt;"), "{text}");
        }
    }

    #[test]
    fn a_higher_figure_is_higher_up_on_either_axis() {
        let height = |text: &str| -> Vec<f64> {
            let each = text.split("cy=\"").skip(1);
            each.map(|rest| rest.split('"').next().unwrap_or_default().parse().expect("a number")).collect()
        };
        for is_logarithmic in [true, false] {
            let lines = [Line { store: 0, name: String::new(), points: vec![(0, 1.0), (1, 10.0), (2, 100.0)] }];
            let found = height(&svg(&axes(&["a", "b", "c"], is_logarithmic), &lines).expect("a plot"));
            assert!(found[0] > found[1] && found[1] > found[2], "{found:?}");
            let is_even = ((found[0] - found[1]) - (found[1] - found[2])).abs() <= 2.0;
            assert_eq!(is_even, is_logarithmic, "{found:?}");
        }
    }

    #[test]
    fn nothing_and_zero_are_drawn_without_an_error() {
        for is_logarithmic in [true, false] {
            for points in [Vec::new(), vec![(0, 0.0)], vec![(0, 5.0)], vec![(0, 10.0), (1, 10.0)]] {
                let names: &[&str] = if points.len() == 2 { &[] } else { &["a"] };
                let is_flat = !is_logarithmic && points.iter().all(|(_, figure)| *figure == 0.0);
                let text = svg(&axes(names, is_logarithmic), &[Line { store: 0, name: String::new(), points }])
                    .expect("a plot");
                assert!(text.contains("</svg>") && !text.contains("NaN"), "{text}");
                // The axis goes up to 1 then.
                assert!(!is_flat || text.lines().any(|line| line.trim() == "0.5"), "{text}");
            }
        }
    }

    /// White, black and the like would be seen on paper of the other kind.
    #[test]
    fn a_plot_of_a_page_has_the_colours_of_the_page() {
        let lines = [Line { store: 1, name: String::new(), points: vec![(0, 10.0), (1, 2.0), (2, 9.0)] }];
        let slowest = Highlight { store: 1, point: (1, 2.0), text: "slowest <second>".into() };
        let text = inline(&axes(&[], false), &lines, &[slowest]).expect("a plot");
        assert!(text.starts_with("<svg viewBox=\"0 0 400 300\" role=\"img\"") && text.ends_with("</svg>"), "{text}");
        assert_eq!(text.matches("<svg").count(), 1, "{text}");
        assert!(!text.contains("\"#") && text.contains("slowest &lt;second&gt;"), "{text}");
        for name in ["--paper", "--ink", "--rule", "--rule-light", "--store-1"] {
            assert!(text.contains(&format!("\"var({name})\"")), "{name}: {text}");
        }
        // The ring, and a mark for each point.
        assert_eq!((text.matches("<circle").count(), text.matches("<polygon").count()), (1, 3), "{text}");
    }

    #[test]
    fn lines_with_a_name_are_in_the_legend() {
        let line = |name: &str| Line { store: 0, name: name.to_owned(), points: vec![(0, 1.0), (1, 2.0)] };
        let text = svg(&axes(&[], false), &[line("packed"), line("")]).expect("a plot");
        assert_eq!(text.matches("packed").count(), 1, "{text}");
        assert!(!svg(&axes(&[], false), &[line("")]).expect("a plot").contains("packed"));
    }

    #[test]
    fn figures_are_short() {
        let all = [0.0, 0.25, 1.5, 20.0, 1e3, 1.3e5, 2e6, 1e9].map(short);
        assert_eq!(all, ["0", "0.25", "1.5", "20", "1 K", "130 K", "2 M", "1 G"]);
    }
}
