//! No space left: writes fail, reads and deletes go on, and there is a way back.

use std::path::Path;
use std::process::Command;

use stratakv::{ErrorKind, Level, Options};
use stratakv_integration::memcache::Client;
use stratakv_integration::program::Serve;
use stratakv_integration::{place, requirement, value};

const LEN: usize = 50_000;

#[test]
fn a_store_at_its_capacity_recovers_once_there_is_room() {
    let place = place::directory();
    let options = Options::new().shards(2).memory_bytes(64 << 20).capacity_bytes(48 << 20).level(Level::ProcessCrash);
    let store = options.open(place.path().join("data")).expect("created");
    let name = |key: u64| format!("key{key}").into_bytes();
    let mut stored = 0;
    let error = loop {
        match store.put(&name(stored), &value::encode(stored, 1, LEN)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 2000, "the capacity does not hold");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(stored > 400, "only {stored} values of {LEN} bytes fit 48 MiB");
    let whole = |key: u64| {
        let record = store.get(&name(key)).expect("reads go on").expect("it was acknowledged");
        assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
    };
    (0..stored).for_each(whole);
    assert!(store.get(&name(stored)).expect("reads go on").is_none(), "the refused write left nothing");
    for round in 0..3 {
        for key in 0..stored / 2 {
            assert!(store.delete(&name(key)).expect("deletes go on"), "round {round}");
        }
        for key in 0..stored / 2 {
            let again = store.put(&name(key), &value::encode(key, 1, LEN));
            again
                .unwrap_or_else(|error| panic!("round {round}, key {key}: the freed space is not used again: {error}"));
        }
    }
    store.close().expect("closed");
    let store = options.open(place.path().join("data")).expect("a full store opens");
    for key in 0..stored {
        let record = store.get(&name(key)).expect("a get").expect("it was acknowledged");
        assert_eq!(value::decode(key, &record.to_bytes()), Ok(1));
    }
}

/// Writes until the server refuses; how many were stored.
fn fill(client: &mut Client, most: u64) -> u64 {
    for key in 0..most {
        let answer = client.set(format!("key{key}").as_bytes(), &value::encode(key, 1, LEN)).expect("answered");
        if answer != "STORED" {
            assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
            return key;
        }
    }
    panic!("{most} values were stored: the disk is not full");
}

/// Fills the server's disk, and checks what then works.
fn serve_until_full(serve: &Serve, most: u64) {
    let served = serve.start();
    let mut client = served.client();
    let stored = fill(&mut client, most);
    assert!(stored > 10, "only {stored} values were stored");
    let whole = |client: &mut Client, key: u64| {
        let bytes = client.get(format!("key{key}").as_bytes()).expect("reads go on").expect("it was acknowledged");
        assert_eq!(value::decode(key, &bytes), Ok(1));
    };
    (0..stored).for_each(|key| whole(&mut client, key));
    for key in 0..stored / 2 {
        assert_eq!(client.ask(&format!("delete key{key}")).expect("deletes go on"), "DELETED");
    }
    for key in 0..stored / 4 {
        let again = client.set(format!("key{key}").as_bytes(), &value::encode(key, 1, LEN)).expect("answered");
        assert_eq!(again, "STORED", "there is room again");
    }
    assert!(served.stop().success(), "a server on a full disk ends in order");
    let served = serve.start();
    let mut client = served.client();
    (0..stored / 4).chain(stored / 2..stored).for_each(|key| whole(&mut client, key));
    (stored / 4..stored / 2)
        .for_each(|key| assert_eq!(client.get(format!("key{key}").as_bytes()).expect("a get"), None));
}

#[test]
fn a_file_size_limit_is_a_full_disk() {
    let place = place::directory();
    // In blocks of 512 bytes (dash) or 1 KiB (bash). SIGXFSZ would end the process: the server must see EFBIG instead.
    let serve = Serve::on(&place.path().join("data")).before("trap '' XFSZ; ulimit -f 40000");
    serve_until_full(&serve, 6000);
}

/// A mounted file system; unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A failure leaves a mount behind, which the removal of the directory will tell.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn mount_small<'a>(image: &Path, at: &'a Path) -> Option<Mounted<'a>> {
    requirement::tool("mkfs.ext4").or_else(|| requirement::tool("/sbin/mkfs.ext4"))?;
    let file = std::fs::File::create(image).expect("an image can be made");
    file.set_len(80 << 20).expect("an image can be made");
    std::fs::create_dir(at).expect("a mount point can be made");
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image).status().expect("mkfs.ext4 can be started");
    assert!(made.success());
    let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(at).output();
    match mounted {
        Ok(output) if output.status.success() => Some(Mounted(at)),
        _ => {
            requirement::not_here("loop devices cannot be mounted (not root, or a container)");
            None
        }
    }
}

#[test]
fn a_full_file_system() {
    let place = place::directory();
    let (image, at) = (place.path().join("image"), place.path().join("mounted"));
    let Some(mounted) = mount_small(&image, &at) else { return };
    serve_until_full(&Serve::on(&at.join("data")), 3000);
    drop(mounted);
}
