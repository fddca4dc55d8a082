//! `cargo xtask report-page`: a report of benchmarks in a real browser (Chromium, without a
//! window). Short runs are measured, two placements side by side. The page is looked at light,
//! dark, as it is printed, and at the width of a phone. `--screenshot FILE` keeps what it looks
//! like. `--of FILE.html` looks at a report that is there, and measures nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::browser::{Browser, Check, DESKTOP, check};
use crate::cargo::{built, cargo, succeed};
use crate::serving::with_directory;

const USAGE: &str = "usage: cargo xtask report-page [--screenshot FILE] [--dark FILE] [--phone FILE] [--of FILE.html]";
/// Width and height of a phone.
const PHONE: (u32, u32) = (400, 800);

/// What is asked for.
#[derive(Debug, Default)]
struct Options {
    light: Option<PathBuf>,
    dark: Option<PathBuf>,
    phone: Option<PathBuf>,
    of: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The page is not as it should be.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    with_directory("report-page", |directory| {
        let page = match &options.of {
            Some(file) => file.clone(),
            None => measured(root, directory)?,
        };
        let page = page.canonicalize().map_err(|error| format!("{}: {error}", page.display()))?;
        look(&page, directory, &options)?;
        println!("report-page: it is readable in light and dark, on paper and on a phone");
        Ok(())
    })
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    for pair in arguments.chunks(2) {
        let [option, file] = pair else { return Err(USAGE.into()) };
        let place = match option.as_str() {
            "--screenshot" => &mut options.light,
            "--dark" => &mut options.dark,
            "--phone" => &mut options.phone,
            "--of" => &mut options.of,
            _ => return Err(USAGE.into()),
        };
        *place = Some(PathBuf::from(file));
    }
    Ok(options)
}

/// Short runs of both placements, and their report.
fn measured(root: &Path, directory: &Path) -> Result<PathBuf, String> {
    succeed("build", cargo(root).args(["build", "--workspace", "--bin", "stratakv", "--test", "bus"]))?;
    let file = |name: &str| directory.join(name).display().to_string();
    let (other, page) = (file("in_place.json"), file("report.html"));
    let bench = |placement: &str, outputs: &[&str]| {
        let data = file("data");
        let mut command = Command::new(built(root, "debug", "stratakv"));
        command.args(["bench", "ycsb", "--workload", "a", "--records", "20K", "--seconds", "3", "--rounds", "3"]);
        command.args(["--warm-up", "1", "--durability", "process_crash", "--data", &data, "--placement", placement]);
        succeed("bench ycsb", command.args(outputs).stdout(Stdio::null()))
    };
    bench("in_place", &["--json", &other])?;
    bench("packed", &["--report", &page, "--beside", &other])?;
    Ok(page.into())
}

fn look(page: &Path, directory: &Path, options: &Options) -> Result<(), String> {
    let mut browser = Browser::start(&directory.join("profile"))?;
    browser.open(&format!("file://{}", page.display()))?;
    let all = [
        ("screen", "light", DESKTOP, &options.light),
        ("screen", "dark", DESKTOP, &options.dark),
        ("print", "light", DESKTOP, &None),
        ("screen", "light", PHONE, &options.phone),
        ("screen", "dark", PHONE, &None),
    ];
    for (media, scheme, (width, height), picture) in all {
        browser.resize(width, height)?;
        browser.emulate(media, scheme)?;
        let is_there = |why| format!("{media}, {scheme}, {width} pixels: {why}");
        check(&mut browser, CHECKS).map_err(is_there)?;
        let fits = format!("document.documentElement.scrollWidth <= {width}");
        check(&mut browser, &[("it fits the width", &fits)]).map_err(is_there)?;
        let paper = if scheme == "dark" { "< 0.2" } else { "> 0.8" };
        check(
            &mut browser,
            &[("its paper", &format!("({LUMINANCE})(getComputedStyle(document.body).backgroundColor) {paper}"))],
        )
        .map_err(is_there)?;
        let contrast = format!("({CONTRASTS}).length === 0");
        if check(&mut browser, &[("every word can be read", &contrast)]).is_err() {
            return Err(is_there(format!("too little contrast: {}", browser.evaluate(CONTRASTS)?)));
        }
        if let Some(file) = picture {
            std::fs::write(file, browser.screenshot()?).map_err(|error| format!("{}: {error}", file.display()))?;
            println!("report-page: {}", file.display());
        }
    }
    match browser.complaints.is_empty() {
        true => Ok(()),
        false => Err(format!("the browser complains: {:#?}", browser.complaints)),
    }
}

/// Of a colour as the browser computes it: 0 is black, 1 white.
const LUMINANCE: &str = "colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(part => { const c = part / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }";

/// Texts whose contrast with what is behind them is below 4.5 (WCAG 2, level AA), each with its
/// ratio; texts of plots by their fill.
const CONTRASTS: &str = "(() => {
    const luminance = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(part => { const c = part / 255;
        return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = one => { for (; one; one = one.parentElement) { const colour = getComputedStyle(one).backgroundColor;
        if (!/, 0\\)$/.test(colour) && colour !== 'transparent') return colour; } return 'rgb(255, 255, 255)'; };
    const told = [];
    for (const one of document.querySelectorAll('h1, h2, h3, p, li, th, td, caption, summary, a, svg text')) {
        if (!one.textContent.trim()) continue;
        const style = getComputedStyle(one);
        const [a, b] = [luminance(one.closest('svg') ? style.fill : style.color), luminance(behind(one))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) told.push(`${one.tagName} ${one.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
    }
    return told;
})()";

/// What is so on every report, however it is looked at.
const CHECKS: &[Check<'static>] = &[
    ("verdicts come first", "document.querySelector('main > section').id === 'verdicts'"),
    ("there are plots", "document.querySelectorAll('.plot svg').length > 0"),
    (
        "a plot is as wide as its place",
        "[...document.querySelectorAll('.plot svg')].every(one => one.getBoundingClientRect().width > 250)",
    ),
    (
        "every plot can be read aloud",
        "[...document.querySelectorAll('.plot svg')].every(one => one.getAttribute('aria-label'))",
    ),
    (
        "colours of stores are there",
        "[...document.querySelectorAll('.plot polyline')].every(one => !/var/.test(getComputedStyle(one).stroke))",
    ),
    ("nothing is NaN", "!/NaN|undefined|Infinity/.test(document.body.innerText)"),
    ("nothing was loaded", "performance.getEntriesByType('resource').length === 0"),
];
