//! Stores whose volumes lie on raw devices: loop devices, so root is needed; elsewhere these tests
//! say that they are skipped.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stratakv::{Error, ErrorKind, Level, Options, Placement, Store};
use stratakv_integration::loop_device::LoopDevice;
use stratakv_integration::program::{self, Serve, said};
use stratakv_integration::{place, requirement, value};

const MIB: u64 = 1 << 20;
const PLACEMENTS: [Placement; 2] = [Placement::InPlace, Placement::Packed];

fn options(devices: &[&LoopDevice]) -> Options {
    let options = Options::new().shards(4).memory_bytes(64 << 20).level(Level::ProcessCrash);
    options.devices(devices.iter().map(|device| device.path()))
}

fn name(key: u64) -> Vec<u8> {
    format!("key{key}").into_bytes()
}

/// Small values, and one of 100 KB in ten.
fn length(key: u64) -> usize {
    if key.is_multiple_of(10) { 100_000 } else { 300 }
}

fn fill(store: &Store, keys: u64) {
    for key in 0..keys {
        store.put(name(key), value::encode(key, 1, length(key))).expect("a put");
    }
}

fn verify(store: &Store, keys: u64) {
    for key in 0..keys {
        let record = store.get(name(key)).expect("a get").unwrap_or_else(|| panic!("key {key} is lost"));
        assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
    }
}

/// The error, which must have these words and the device's name.
fn refused(result: Result<Store, Error>, device: &Path, kind: ErrorKind, words: &str) -> String {
    let error = result.expect_err(words);
    let text = error.to_string();
    assert!(text.contains(words) && text.contains(&device.display().to_string()), "{words}: {text}");
    assert_eq!(error.kind(), kind, "{text}");
    text
}

fn write_at(device: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(device).expect("root may");
    file.write_all_at(bytes, offset).and_then(|()| file.sync_all()).expect("it takes bytes");
}

fn read_at(device: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(device).and_then(|file| file.read_exact_at(&mut bytes, offset)).expect("it gives bytes");
    bytes
}

#[test]
fn a_store_on_devices_is_found_again() {
    for placement in PLACEMENTS {
        let place = place::directory();
        let data = place.path().join("data");
        let Some(a) = LoopDevice::attach(&place.path().join("a"), 130 * MIB, 512) else { return };
        let Some(b) = LoopDevice::attach(&place.path().join("b"), 130 * MIB + 512 * 7, 4096) else { return };
        let options = |devices: &[&LoopDevice]| options(devices).level(Level::PowerLoss);
        let store = options(&[&a, &b]).shards(3).placement(placement).open(&data).expect("created");
        fill(&store, 200);
        // What another handle holds does not keep the devices.
        let other = store.clone();
        store.close().expect("closed");
        assert!(place::volumes(&data).is_empty(), "the volumes lie on the devices");
        let store = Options::new().open(&data).expect("found where they were");
        assert!(store.recovery().clean && store.shards() == 3);
        verify(&store, 200);
        drop((store, other));
        let report = stratakv::check(&data, None).expect("checked");
        assert!(report.is_sound() && report.records == 200, "{report:?}");
        verify(&options(&[&b, &a]).open(&data).expect("named, in another order"), 200);
        let named = [a.path().to_path_buf(), b.path().to_path_buf()];
        assert!(stratakv::check_spread(&data, &[], &named, &[], None).expect("checked").is_sound());
        let format = stratakv::format_of(&data).expect("read").expect("there");
        assert_eq!((format.devices, format.placement), (2, placement));
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    for placement in ["in_place", "packed"] {
        let place = place::directory();
        let Some(device) = LoopDevice::attach(&place.path().join("a"), 200 * MIB, 512) else { return };
        let at = device.path().to_str().expect("text");
        let serve =
            Serve::on(&place.path().join("data")).options(&["--placement", placement, "--shards", "3", "--device", at]);
        let mut keys = 0..600;
        for _ in 0..3 {
            let mut served = serve.start();
            let mut client = served.client();
            for key in 0..keys.start {
                let found = client.get(&name(key)).expect("a get").unwrap_or_else(|| panic!("key {key} is lost"));
                assert_eq!(value::decode(key, &found), Ok(1));
            }
            for key in keys.by_ref().take(200) {
                assert_eq!(client.set(&name(key), &value::encode(key, 1, length(key))).expect("answered"), "STORED");
            }
            served.kill();
        }
        let report = stratakv::check(place.path().join("data"), None).expect("checked");
        assert!(report.is_sound() && report.records == 600, "{report:?}");
    }
}

#[test]
fn a_device_in_use_is_refused() {
    let place = place::directory();
    let data = place.path().join("data");
    let Some(device) = LoopDevice::attach(&place.path().join("a"), 64 * MIB, 512) else { return };
    let at = device.path();
    let store = options(&[&device]).open(&data).expect("created");
    fill(&store, 50);
    refused(options(&[&device]).open(place.path().join("other")), at, ErrorKind::Locked, "another program has it");
    // A copy of the directory has a lock of its own, but the device is one.
    let copy = place.path().join("copy");
    fs::create_dir(&copy).and_then(|()| fs::copy(data.join("store.toml"), copy.join("store.toml"))).expect("copied");
    refused(Options::new().open(&copy), at, ErrorKind::Locked, "another program has it");
    fs::write(copy.join("LOCK"), "").expect("written");
    refused(Options::new().read_only(true).open(&copy), at, ErrorKind::Locked, "another program has it");
    verify(&store, 50);
    drop(store);
    // Readers share it with each other.
    let reader = Options::new().read_only(true).open(&data).expect("opened");
    verify(&Options::new().read_only(true).open(&copy).expect("a second reader"), 50);
    refused(Options::new().open(&copy), at, ErrorKind::Locked, "another program has it");
    drop(reader);

    // Mounted.
    let Some(mkfs) = requirement::tool("mkfs.ext4") else { return };
    let Some(mounted) = LoopDevice::attach(&place.path().join("b"), 64 * MIB, 512) else { return };
    assert!(Command::new(mkfs).arg("-q").arg(mounted.path()).status().expect("started").success());
    let at = place.path().join("mounted");
    fs::create_dir(&at).expect("made");
    let mount = Command::new("mount").arg(mounted.path()).arg(&at).status().expect("started");
    if !mount.success() {
        return requirement::not_here("nothing can be mounted");
    }
    let result = options(&[&mounted]).open(place.path().join("other"));
    assert!(Command::new("umount").arg(&at).status().expect("started").success());
    refused(result, mounted.path(), ErrorKind::Locked, "mounted");
}

#[test]
fn a_device_that_holds_anything_is_not_written_to() {
    let place = place::directory();
    let Some(device) = LoopDevice::attach(&place.path().join("a"), 18 * MIB + 512, 512) else { return };
    let at = device.path();
    let (text, len) = (at.to_str().expect("text"), 18 * MIB as usize + 512);
    let is_kept = |words: &str, kind: ErrorKind| {
        let before = read_at(at, 0, len);
        let message = refused(options(&[&device]).open(place.path().join("data")), at, kind, words);
        assert!(message.contains(&format!("`blkdiscard --zeroout {text}`")), "{message}");
        for arguments in
            [&["doctor", text][..], &["serve", "--data", text, "--memcache", "127.0.0.1:0"], &["check", "--data", text]]
        {
            let output = program::run(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        }
        assert!(read_at(at, 0, len) == before, "{words}: something was written");
    };
    // The first byte, the last bytes of the first MiB and of the device, which ends within a page.
    for (offset, words) in [(0, "at 0)"), (MIB - 1, "at 1048575)"), (18 * MIB + 511, "at 18874879)")] {
        write_at(at, offset, b"x");
        is_kept(words, ErrorKind::Usage);
        write_at(at, offset, &[0]);
    }
    if let Some(mkfs) = requirement::tool("mkfs.ext4") {
        assert!(Command::new(mkfs).args(["-q", "-F"]).arg(at).status().expect("started").success());
        is_kept("ext4 file system", ErrorKind::Usage);
    }
    let Some(blkdiscard) = requirement::tool("blkdiscard") else { return };
    let clear = || assert!(Command::new(&blkdiscard).args(["--zeroout", text]).status().expect("started").success());
    clear();
    let store = options(&[&device]).open(place.path().join("first")).expect("what the message says helps");
    fill(&store, 20);
    drop(store);
    is_kept("volumes of the StrataKV store", ErrorKind::Usage);
    verify(&Options::new().open(place.path().join("first")).expect("opened"), 20);
    clear();
    drop(options(&[&device]).open(place.path().join("second")).expect("empty again"));
}

#[test]
fn what_is_no_place_for_a_store_is_said() {
    let place = place::directory();
    let data = place.path().join("data");
    let Some(small) = LoopDevice::attach(&place.path().join("a"), 16 * MIB, 512) else { return };
    refused(options(&[&small]).open(&data), small.path(), ErrorKind::Usage, "16.0 MiB, and 4 shards want 17.0 MiB");
    let missing = Path::new("/dev/disk/no-such-device");
    refused(Options::new().devices([missing]).open(&data), missing, ErrorKind::NotFound, "no such device");
    refused(Options::new().devices([&small.image]).open(&data), &small.image, ErrorKind::Usage, "no block device");
    refused(options(&[&small, &small]).open(&data), small.path(), ErrorKind::Usage, "named twice");
    let link = place.path().join("link");
    std::os::unix::fs::symlink(small.path(), &link).expect("linked");
    let twice = options(&[]).devices([small.path(), &link]).open(&data);
    refused(twice, &link, ErrorKind::Usage, "named twice");
    let many = options(&[]).shards(1).devices([small.path(), missing]).open(&data).expect_err("too many");
    assert!(many.to_string().contains("2 devices for 1 shard:"), "{many}");
    let both = options(&[&small]).data_directories([place.path().join("b")]).open(&data).expect_err("both");
    assert_eq!(both.kind(), ErrorKind::Usage, "{both}");
    // Nothing of all that has kept the device from being used, nor the directory.
    drop(options(&[&small]).shards(1).open(&data).expect("created"));
    let more = options(&[]).devices([small.path(), missing]).open(&data).expect_err("one too many");
    assert!(more.to_string().contains("has 1"), "{more}");
    drop(Options::new().open(place.path().join("files")).expect("created"));
    let none = options(&[&small]).open(place.path().join("files")).expect_err("it has files");
    assert!(none.to_string().contains("in directories"), "{none}");
}

#[test]
fn a_device_that_is_missing_or_exchanged_is_named() {
    let place = place::directory();
    let [one, two, other] = ["1", "2", "3"].map(|name| place.path().join(name));
    let attach = |image: &str| LoopDevice::attach(&place.path().join(image), 48 * MIB, 512);
    let (Some(a), Some(b), Some(c), Some(d)) = (attach("a"), attach("b"), attach("c"), attach("d")) else { return };
    let store = options(&[&a, &b]).open(&one).expect("created");
    fill(&store, 100);
    drop(store);
    drop(options(&[&c]).open(&two).expect("created"));

    refused(options(&[&a, &c]).open(&one), c.path(), ErrorKind::Corrupt, "a device of another store");
    refused(options(&[&a, &d]).open(&one), d.path(), ErrorKind::Corrupt, "no label");
    refused(options(&[&a]).open(&one), b.path(), ErrorKind::NotFound, "device 1 of the store");
    fs::copy(&a.image, &d.image).expect("copied");
    refused(options(&[&a, &d]).open(&one), d.path(), ErrorKind::Corrupt, "one is a copy");

    // Names change places, as they may at a restart: the labels tell.
    let names = [a.path(), b.path()].map(|path| path.display().to_string());
    let text = fs::read_to_string(one.join("store.toml")).expect("read");
    let swapped = text.replace(&names[0], "X").replace(&names[1], &names[0]).replace('X', &names[1]);
    assert_ne!(text, swapped);
    fs::write(one.join("store.toml"), swapped).expect("written");
    verify(&Options::new().open(&one).expect("found by their labels"), 100);
    // Somebody else's device has the name.
    fs::write(one.join("store.toml"), text.replace(&names[1], &c.path().display().to_string())).expect("written");
    let message = refused(Options::new().open(&one), c.path(), ErrorKind::Corrupt, "a device of another store");
    assert!(message.contains("--device"), "{message}");
    verify(&options(&[&a, &b]).open(&one).expect("named"), 100);
    fs::write(one.join("store.toml"), text).expect("written");

    // Another range of another store's directory.
    fs::create_dir(&other).and_then(|()| fs::copy(two.join("store.toml"), other.join("store.toml"))).expect("copied");
    refused(options(&[&a]).open(&other), a.path(), ErrorKind::Corrupt, "a device of another store");

    // Gone: the name leads nowhere, or to a device with nothing behind it.
    let (image, at) = (b.image.clone(), b.path().to_path_buf());
    drop(b);
    let error = Options::new().open(&one).expect_err("it is gone");
    assert!(error.to_string().contains(&at.display().to_string()), "{error}");
    let data = one.to_str().expect("text");
    let output = program::run(&["get", "--data", data, "key1"]);
    assert!(!output.status.success() && said(&output).contains(at.to_str().expect("text")), "{}", said(&output));
    // Made smaller.
    File::options().write(true).open(&image).and_then(|file| file.set_len(40 * MIB)).expect("cut");
    let Some(cut) = LoopDevice::attach(&image, 0, 512) else { return };
    refused(options(&[&a, &cut]).open(&one), cut.path(), ErrorKind::Corrupt, "made smaller");
}

#[test]
fn a_damaged_label_is_repaired_and_a_foreign_mark_left_alone() {
    let place = place::directory();
    let data = place.path().join("data");
    let Some(device) = LoopDevice::attach(&place.path().join("a"), 48 * MIB, 512) else { return };
    let at = device.path();
    drop(options(&[&device]).open(&data).expect("created"));
    let label = read_at(at, 0, 512);
    assert_eq!(label, read_at(at, MIB / 2, 512));
    let damage = || stratakv::check(&data, None).expect("checked").damage;
    for offset in [0, MIB / 2] {
        write_at(at, offset + 20, &[!label[20]]);
        assert!(damage().iter().any(|damage| damage.contains("label")), "{:?}", damage());
        assert_ne!(read_at(at, offset, 512), label, "a check repairs nothing");
        drop(Options::new().open(&data).expect("opened"));
        assert!(damage().is_empty() && read_at(at, offset, 512) == label);
    }
    write_at(at, 0, &[b'z'; 512]);
    drop(Options::new().open(&data).expect("by the other copy"));
    assert_eq!(read_at(at, 0, 512), [b'z'; 512], "who wrote this may want it");
    write_at(at, MIB / 2, &[b'z'; 512]);
    refused(Options::new().open(&data), at, ErrorKind::Corrupt, "no label");
    write_at(at, 0, &label);
    write_at(at, 8, &[9]);
    drop(refused(Options::new().open(&data), at, ErrorKind::Corrupt, "no label"));
}

#[test]
fn a_full_device_refuses_and_goes_on_once_there_is_room() {
    for placement in PLACEMENTS {
        let place = place::directory();
        let data = place.path().join("data");
        let Some(device) = LoopDevice::attach(&place.path().join("a"), 49 * MIB, 512) else { return };
        let options = options(&[&device]).shards(2).placement(placement);
        let store = options.open(&data).expect("created");
        let put = |store: &Store, key: u64| store.put(name(key), value::encode(key, 1, 3000));
        let mut stored = Vec::new();
        let mut refusals = 0;
        // On after the first refusal, so that both ranges are full to their ends.
        for key in 0..30_000 {
            match put(&store, key) {
                Ok(_) => stored.push(key),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                    refusals += 1;
                }
            }
            if refusals == 500 {
                break;
            }
        }
        assert!(refusals == 500 && stored.len() > 7000, "{placement:?}: {} records, {refusals} refusals", stored.len());
        let whole = |store: &Store, keys: &[u64]| {
            for &key in keys {
                let record = store.get(name(key)).expect("a get").unwrap_or_else(|| panic!("key {key} is lost"));
                assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
            }
        };
        whole(&store, &stored);
        store.close().expect("closed");
        let report = stratakv::check(&data, None).expect("checked");
        assert!(report.is_sound() && report.records == stored.len() as u64, "{report:?}");
        let store = Options::new().memory_bytes(64 << 20).open(&data).expect("a full device opens");
        let (gone, kept) = stored.split_at(stored.len() / 2);
        gone.iter().for_each(|key| assert!(store.delete(name(*key)).expect("deletes go on")));
        // `packed` keeps room for its cleaner and for tombstones: not quite as much fits as before
        // the deletes.
        let gone = &gone[..gone.len() * 3 / 4];
        for key in gone {
            put(&store, *key).unwrap_or_else(|error| panic!("{placement:?}: room is not used: {error}"));
        }
        whole(&store, gone);
        whole(&store, kept);
        drop(store);
        assert!(stratakv::check(&data, None).expect("checked").is_sound());
    }
}

#[test]
fn a_capacity_below_the_device_holds() {
    let place = place::directory();
    let Some(device) = LoopDevice::attach(&place.path().join("a"), 101 * MIB, 512) else { return };
    let options = options(&[&device]).shards(1).capacity_bytes(20 * MIB);
    let store = options.open(place.path().join("data")).expect("created");
    let stored = (0..60_000).take_while(|key| store.put(name(*key), value::encode(*key, 1, 3000)).is_ok()).count();
    assert!((3000..6000).contains(&stored), "{stored} records of 3,000 bytes in 20 MiB");
}

#[test]
fn an_interrupted_creation_is_taken_up_again() {
    let place = place::directory();
    let data = place.path().join("data");
    let Some(device) = LoopDevice::attach(&place.path().join("a"), 101 * MIB, 512) else { return };
    drop(options(&[&device]).open(&data).expect("created"));
    let path = data.join("store.toml");
    let interrupt = || {
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, text.replace("complete = true", "complete = false")).expect("written");
    };
    for shards in [2, 5] {
        interrupt();
        refused(
            Options::new().devices([device.path()]).open(place.path().join("x")),
            device.path(),
            ErrorKind::Usage,
            "holds volumes",
        );
        let store = options(&[&device]).shards(shards).open(&data).expect("it is its own device");
        assert!(store.recovery().created && store.shards() == shards);
        fill(&store, 30);
    }
    verify(&Options::new().open(&data).expect("opened"), 30);
}

#[test]
fn the_program_works_on_devices() {
    let place = place::directory();
    let Some(device) = LoopDevice::attach(&place.path().join("a"), 101 * MIB, 4096) else { return };
    let [data, copy, backup] = ["data", "copy", "backup"].map(|name| place.path().join(name));
    let text = |path: &PathBuf| path.to_str().expect("text").to_owned();
    let (data, copy, backup, at) = (text(&data), text(&copy), text(&backup), text(&device.path().to_path_buf()));
    let run = |arguments: &[&str], words: &str| {
        let output = program::run(arguments);
        assert!(output.status.success() && said(&output).contains(words), "{arguments:?}: {}", said(&output));
    };
    run(&["put", "--data", &data, "--device", &at, "k", "precious"], "");
    run(&["get", "--data", &data, "k"], "precious");
    run(&["get", "--data", &data, "--device", &at, "k"], "precious");
    run(&["stats", "--data", &data], "closed in order");
    run(&["dump", "--data", &data], "precious");
    run(&["check", "--data", &data], "sound");
    run(&["check", "--data", &data, "--device", &at], "sound");
    run(&["backup", "--data", &data, &backup], "");
    // Onto a device that is not empty, then onto one that is.
    let output = program::run(&["restore", &backup, "--data", &copy, "--device", &at]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    run(&["get", "--data", &data, "k"], "precious");
    let Some(other) = LoopDevice::attach(&place.path().join("b"), 101 * MIB, 512) else { return };
    let other = text(&other.path().to_path_buf());
    fs::remove_dir_all(&copy).expect("removed");
    run(&["restore", &backup, "--data", &copy, "--device", &other, "--shards", "3"], "1 record restored");
    run(&["get", "--data", &copy, "k"], "precious");
    let output = program::run(&["serve", "--data", &data, "--max-latency", "1ms", "--memcache", "127.0.0.1:0"]);
    assert!(output.status.code() == Some(2) && said(&output).contains("--depth"), "{}", said(&output));
}
