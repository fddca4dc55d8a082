//! `collections --server`.

use super::*;

fn asked(server: &str, arguments: &[&str]) -> Output {
    run(Path::new("/nonexistent"), &[&["collections", "--server", server], arguments].concat())
}

fn listed(server: &str, arguments: &[&str]) -> String {
    let output = asked(server, arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_lists_makes_and_drops_collections() {
    let (_directory, data) = directory();
    put(&data, &["--collection", "users\tand more", "ada", "36"]);
    let serving = Serving::with(&data, &["--threads", "1"]);
    let server = serving.address.as_str();
    assert_eq!(listed(server, &[]), "users\\tand more\n");
    assert_eq!(listed(server, &["--json"]), "[\"users\\tand more\"]\n");
    assert_eq!(listed(server, &["--create", "scores", "--order", "stratakv.numeric"]), "");
    assert_eq!(listed(server, &["--create", "plain"]), "");
    assert_eq!(listed(server, &["--create", "plain"]), "", "it is there already");
    let long = "plain\tkeyvalue\t0\tnever\tbytes\nscores\tkeyvalue\t0\tnever\tstratakv.numeric\n\
                users\\tand more\tkeyvalue\t1\tnever\tbytes\n";
    assert_eq!(listed(server, &["--long"]), long);
    let other_order = asked(server, &["--create", "scores", "--order", "stratakv.reversed"]);
    assert!(code(&other_order) == 2 && stderr(&other_order).contains("stratakv.numeric"), "{}", stderr(&other_order));
    assert_eq!(listed(server, &["--drop", "users\tand more"]), "");
    let absent = asked(server, &["--drop", "users\tand more"]);
    assert!(code(&absent) == 3 && stderr(&absent).contains("no collection"), "{}", stderr(&absent));
    let bad = asked(server, &["--create", &"n".repeat(256)]);
    assert!(code(&bad) == 2 && stderr(&bad).contains("1 to 255"), "{}", stderr(&bad));
    let both = asked(server, &["--data", "elsewhere"]);
    assert!(code(&both) == 2 && stderr(&both).contains("--data"), "{}", stderr(&both));
    let mut serving = serving;
    serving.signal("-TERM");
    assert!(serving.child.wait().unwrap().success());
    // The same without a server, and what was made is there.
    assert_eq!(ok(&data, &["collections"]), b"plain\nscores\n");
    assert_eq!(ok(&data, &["collections", "--create", "third"]), b"");
    assert_eq!(ok(&data, &["collections", "--long"]).iter().filter(|byte| **byte == b'\n').count(), 3);
}

#[test]
fn a_server_with_accounts_wants_a_login_for_collections() {
    let (directory, data) = directory();
    put(&data, &["key", "value"]);
    let accounts = directory.path().join("accounts");
    std::fs::write(&accounts, "ada:secret\n").unwrap();
    let accounts = accounts.to_str().unwrap();
    let serving = Serving::with(&data, &["--threads", "1", "--auth-file", accounts]);
    let server = serving.address.as_str();
    for task in [&[][..], &["--create", "users"], &["--drop", "users"]] {
        let refused = asked(server, task);
        assert!(code(&refused) == 2 && stderr(&refused).contains("log in with"), "{task:?}: {}", stderr(&refused));
        let wrong = directory.path().join("wrong");
        std::fs::write(&wrong, "ada:guess\n").unwrap();
        let refused = asked(server, &[task, &["--auth-file", wrong.to_str().unwrap()]].concat());
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    }
    assert_eq!(listed(server, &["--create", "users", "--auth-file", accounts]), "");
    assert_eq!(listed(server, &["--auth-file", accounts]), "users\n");
}
