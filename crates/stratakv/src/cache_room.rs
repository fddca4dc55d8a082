//! Whether the disks have room for the second tier of a cache. It is no limit that is met one day,
//! as the capacity of a durable store, but what the cache will take as soon as it has filled.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stratakv_base::quantity::format_bytes;

use crate::directory::Directory;

/// Of one file system: what volumes there are to take, and what they have or may have.
struct Room {
    at: PathBuf,
    wanted_bytes: u64,
    has_bytes: u64,
}

/// Warns of file systems that have less than a cache of that many bytes in so many shards takes
/// there.
pub(crate) fn warn_of_too_little(directory: &Directory, cache_bytes: u64, shards: u32) {
    warn(directory, cache_bytes, shards, too_little);
}

/// The same, of a cache that saves so much memory at shutdown.
pub(crate) fn warn_of_too_little_to_save(directory: &Directory, memory_bytes: u64, shards: u32) {
    warn(directory, memory_bytes, shards, too_little_to_save);
}

fn warn(directory: &Directory, bytes: u64, shards: u32, why: fn(&Room) -> Option<String>) {
    if !directory.devices.is_empty() {
        return;
    }
    match rooms(directory, bytes, shards) {
        Ok(rooms) => rooms.iter().filter_map(why).for_each(|why| tracing::warn!("{why}")),
        Err(error) => tracing::debug!(%error, "what is free on the disks of the cache is not known"),
    }
}

fn rooms(directory: &Directory, cache_bytes: u64, shards: u32) -> io::Result<Vec<Room>> {
    let mut rooms = BTreeMap::new();
    for shard in 0..shards {
        let volume = directory.volume_path(shard);
        let at = volume.parent().unwrap_or(Path::new("."));
        let device = fs::metadata(at)?.dev();
        let free = rustix::fs::statvfs(at)?;
        let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
        let room =
            rooms.entry(device).or_insert_with(|| Room { at: at.to_owned(), wanted_bytes: 0, has_bytes: free_bytes });
        room.wanted_bytes += cache_bytes / u64::from(shards);
        room.has_bytes += fs::metadata(&volume).map_or(0, |found| found.blocks() * 512);
    }
    Ok(rooms.into_values().collect())
}

fn too_little(room: &Room) -> Option<String> {
    let (at, wanted, has) = (room.at.display(), format_bytes(room.wanted_bytes), format_bytes(room.has_bytes));
    (room.wanted_bytes > room.has_bytes).then(|| {
        format!(
            "the cache in {at} may take {wanted} there, and the file system has {has} ({} bytes) for it: what does not fit is not cached on the disk. Give a smaller capacity (--capacity), or \
             make room",
            room.has_bytes
        )
    })
}

fn too_little_to_save(room: &Room) -> Option<String> {
    let (at, wanted, has) = (room.at.display(), format_bytes(room.wanted_bytes), format_bytes(room.has_bytes));
    (room.wanted_bytes > room.has_bytes).then(|| {
        format!(
            "the cache in {at} may save {wanted} there at shutdown, and the file system has {has} ({} bytes) for it: the next start may find a part only. Give less memory (--memory), or \
             make room (a tmpfs can be given more: mount -o remount,size=..)",
            room.has_bytes
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_longer_than_its_disk_was_taken_in_silence() {
        let at = tempfile::tempdir().unwrap();
        let directory = Directory::lock(at.path(), true, false).unwrap();
        let told = |bytes| rooms(&directory, bytes, 2).unwrap().iter().filter_map(too_little).collect::<Vec<_>>();
        assert_eq!(told(8 << 10), [""; 0]);
        let to_save: Vec<String> =
            rooms(&directory, 900 << 40, 2).unwrap().iter().filter_map(too_little_to_save).collect();
        assert!(to_save.len() == 1 && to_save[0].contains("may save 900 TiB"), "{to_save:?}");
        let told = told(900 << 40);
        assert!(told.len() == 1 && told[0].contains("900 TiB") && told[0].contains("--capacity"), "{told:?}");
    }
}
