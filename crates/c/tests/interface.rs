//! C programs compiled against the header and linked with the library, as users do it; and that
//! header and library declare the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo has put the shared library: beside this test, or one folder up.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folders = test.ancestors().skip(1).take(2);
    let mut places = folders.map(|folder| folder.join("libstratakv_c.so"));
    places.find(|place| place.exists()).expect("libstratakv_c.so lies beside its tests")
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(command: &mut Command) -> String {
    // Cargo's, which comes before what a program was linked with: another build's library may lie
    // there.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; install it"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}:\n{out}{err}", output.status);
    out.into_owned()
}

/// Compiles a program, with every warning an error.
fn compile(compiler: &str, flags: &[&str], file: &Path, to: &Path) {
    let library = library();
    let folder = library.parent().expect("it lies in a folder");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I"]).arg(source("include")).args(flags);
    command.arg(file).arg("-o").arg(to).arg("-L").arg(folder);
    run(command.args(["-lstratakv_c", "-lpthread"]).arg(format!("-Wl,-rpath,{}", folder.display())));
}

fn holds_on(engine: &str) {
    let place = tempfile::tempdir().expect("a folder");
    let program = place.path().join("interface");
    compile("cc", &["-std=c11", "-D_GNU_SOURCE"], &source("tests/interface.c"), &program);
    assert_eq!(run(Command::new(&program).arg(place.path().join("data")).arg(engine)), "all holds\n");
}

#[test]
fn a_c_program_does_everything_on_slab() {
    holds_on("slab");
}

#[test]
fn a_c_program_does_everything_on_hash() {
    holds_on("hash");
}

#[test]
fn a_c_program_does_everything_on_matrix() {
    holds_on("matrix");
}

/// Only the header warned: writes in a child were acknowledged and lost, and closing hung.
#[test]
fn a_forked_child_is_refused() {
    for engine in ["slab", "hash", "matrix"] {
        let place = tempfile::tempdir().expect("a folder");
        let program = place.path().join("forks");
        compile("cc", &["-std=c11", "-D_GNU_SOURCE"], &source("tests/forks.c"), &program);
        assert_eq!(run(Command::new(&program).arg(place.path().join("data")).arg(engine)), "all holds\n");
    }
}

/// The same with the address sanitizer, which sees what is freed twice, used after it, or never
/// freed, on both sides.
#[test]
fn a_c_program_leaks_nothing() {
    let place = tempfile::tempdir().expect("a folder");
    let program = place.path().join("interface");
    let flags = ["-std=c11", "-D_GNU_SOURCE", "-fsanitize=address", "-fno-omit-frame-pointer"];
    compile("cc", &flags, &source("tests/interface.c"), &program);
    let mut run_it = Command::new(&program);
    run_it.env("ASAN_OPTIONS", "detect_leaks=1:allocator_may_return_null=1");
    assert_eq!(run(run_it.arg(place.path().join("data")).arg("slab")), "all holds\n");
}

/// The first program of a page compiles as it stands there, and says what the page says.
fn the_page_runs(page: &str, language: &str, compiler: &str, standard: &str) {
    let place = tempfile::tempdir().expect("a folder");
    let page = std::fs::read_to_string(source("../../docs").join(page)).expect("the page is there");
    let block = |language: &str| {
        let start = page.split(&format!("```{language}\n")).nth(1).expect("the page has such a block");
        start.split("```").next().unwrap_or_default().to_owned()
    };
    let (file, program) = (place.path().join(format!("ten.{language}")), place.path().join("ten"));
    std::fs::write(&file, block(language)).expect("a file");
    compile(compiler, &[standard], &file, &program);
    assert_eq!(run(Command::new(&program).current_dir(place.path())), block("text"));
}

#[test]
fn the_books_program_runs() {
    the_page_runs("c.md", "c", "cc", "-std=c11");
}

#[test]
fn the_books_cxx_program_runs() {
    the_page_runs("cpp.md", "cpp", "c++", "-std=c++17");
}

#[test]
fn the_header_is_cxx_too() {
    let place = tempfile::tempdir().expect("a folder");
    let (file, program) = (place.path().join("main.cc"), place.path().join("main"));
    let text = "#include \"stratakv.h\"\nint main() { return *stratakv_version() == 0; }\n";
    std::fs::write(&file, text).expect("a file");
    compile("c++", &["-std=c++11", "-pedantic"], &file, &program);
    run(&mut Command::new(&program));
}

/// The C++ interface does everything that it declares.
fn holds_in_cxx(engine: &str, flags: &[&str]) {
    let place = tempfile::tempdir().expect("a folder");
    let program = place.path().join("db");
    let flags = [&["-std=c++17", "-pedantic"], flags].concat();
    compile("c++", &flags, &source("tests/db.cc"), &program);
    let mut run_it = Command::new(&program);
    run_it.env("ASAN_OPTIONS", "detect_leaks=1:allocator_may_return_null=1");
    assert_eq!(run(run_it.arg(place.path().join("data")).arg(engine)), "all holds\n");
}

#[test]
fn a_cxx_program_does_everything_on_slab() {
    holds_in_cxx("slab", &[]);
}

#[test]
fn a_cxx_program_does_everything_on_hash() {
    holds_in_cxx("hash", &[]);
}

#[test]
fn a_cxx_program_does_everything_on_matrix_and_leaks_nothing() {
    holds_in_cxx("matrix", &["-fsanitize=address", "-fno-omit-frame-pointer"]);
}

/// A program that was written for RocksDB, and that RocksDB 7.8 runs with the same output, needs
/// other includes, and nothing else.
#[test]
fn a_program_written_for_rocksdb_is_ported_by_its_includes() {
    let place = tempfile::tempdir().expect("a folder");
    let written = std::fs::read_to_string(source("tests/written_for_rocksdb.cc")).expect("the program is there");
    assert!(!written.contains("stratakv"), "it knows RocksDB only");
    let is_theirs = |line: &str| line.starts_with("#include \"rocksdb/");
    let ours = "#include <stratakv/as_rocksdb.h>";
    let ported: Vec<&str> = written.lines().map(|line| if is_theirs(line) { ours } else { line }).collect();
    let (file, program) = (place.path().join("ported.cc"), place.path().join("ported"));
    std::fs::write(&file, ported.join("\n") + "\n").expect("a file");
    compile("c++", &["-std=c++17", "-pedantic"], &file, &program);
    let expected = std::fs::read_to_string(source("tests/written_for_rocksdb.out")).expect("its output is there");
    assert_eq!(run(Command::new(&program).arg(place.path().join("data"))), expected);
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(source("include/stratakv.h")).expect("the header is there");
    // Without comments; callbacks are declared as `(*name)`.
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let words = code.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_'));
    let calls = words.filter_map(|word| word.strip_suffix('('));
    let declared: BTreeSet<String> = calls.filter(|name| name.starts_with("stratakv_")).map(str::to_owned).collect();
    let exported = run(Command::new("nm").args(["-D", "--defined-only", "--format=just-symbols"]).arg(library()));
    let exported: BTreeSet<String> =
        exported.lines().filter(|name| name.starts_with("stratakv_")).map(str::to_owned).collect();
    assert_eq!(declared, exported);
    assert!(declared.len() > 80, "only {} functions were found", declared.len());
}
