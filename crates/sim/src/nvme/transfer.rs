//! Where a command's data lies (NVMe Base Specification 2.0, section 4.1), and taking it from
//! there.

use stratakv_device::nvme::DeviceMemory;

use super::controller::Command;

const MEMORY_PAGE_BYTES: usize = 4096;

/// A run of the host's memory: its address, and bytes.
pub(super) type Run = (u64, usize);

/// SGL descriptor types.
const DATA_BLOCK: u64 = 0;
const LAST_SEGMENT: u64 = 3;

/// Where `bytes` of a command's data lie; `None` if what tells that lies nowhere or is wrong.
pub(super) fn runs(command: &Command, bytes: usize, memory: &DeviceMemory) -> Option<Vec<Run>> {
    match command.has_sgl() {
        true => blocks(command.data_pointer(), bytes, memory),
        false => pages(command.data_pointer(), bytes, memory),
    }
}

/// By an SGL: one data block, or a segment of them. They are as long as the data.
fn blocks([address, about]: [u64; 2], bytes: usize, memory: &DeviceMemory) -> Option<Vec<Run>> {
    let block = |[address, about]: [u64; 2]| (about >> 60 == DATA_BLOCK).then_some((address, about as u32 as usize));
    let runs = match about >> 60 {
        LAST_SEGMENT => {
            let mut segment = vec![0; about as u32 as usize];
            if !memory.read(address, &mut segment) {
                return None;
            }
            let descriptors = segment.chunks_exact(16).map(|descriptor| {
                let (address, about) = descriptor.split_at(8);
                [address, about].map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            });
            descriptors.map(block).collect::<Option<Vec<_>>>()?
        }
        _ => vec![block([address, about])?],
    };
    (runs.iter().map(|(_, len)| len).sum::<usize>() == bytes).then_some(runs)
}

/// By PRP entries: the pages; `None` if the list lies nowhere, or an entry is not aligned.
fn pages([one, two]: [u64; 2], bytes: usize, memory: &DeviceMemory) -> Option<Vec<Run>> {
    let page = MEMORY_PAGE_BYTES as u64;
    let first = (MEMORY_PAGE_BYTES - (one % page) as usize).min(bytes);
    let mut runs = vec![(one, first)];
    let mut left = bytes - first;
    if left > 0 && left <= MEMORY_PAGE_BYTES {
        runs.push((two, left));
        left = 0;
    }
    let mut at = two;
    while left > 0 {
        let mut entry = [0; 8];
        if !memory.read(at, &mut entry) {
            return None;
        }
        let len = left.min(MEMORY_PAGE_BYTES);
        runs.push((u64::from_le_bytes(entry), len));
        (left, at) = (left - len, at + 8);
    }
    runs.iter().skip(1).all(|(address, _)| address.is_multiple_of(page)).then_some(runs)
}

/// Copies the data out of the host's memory; `false`: some of it lies nowhere.
pub(super) fn gather(runs: &[Run], into: &mut [u8], memory: &DeviceMemory) -> bool {
    let mut rest = into;
    for (address, len) in runs {
        let (piece, others) = rest.split_at_mut((*len).min(rest.len()));
        if !memory.read(*address, piece) {
            return false;
        }
        rest = others;
    }
    true
}

/// Copies data to the host's memory; `false`: some of it lies nowhere.
pub(super) fn scatter(runs: &[Run], from: &[u8], memory: &DeviceMemory) -> bool {
    let mut rest = from;
    for (address, len) in runs {
        let (piece, others) = rest.split_at((*len).min(rest.len()));
        if !memory.write(*address, piece) {
            return false;
        }
        rest = others;
    }
    true
}
