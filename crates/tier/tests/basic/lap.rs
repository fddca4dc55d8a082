//! Where the laps of the log meet the volume's end.

use super::*;

/// The last segment of the first lap ends where the volume does, and the process ends before the
/// second lap begins: there is no page after it, and the log has been read from its beginning.
#[test]
fn a_log_that_ends_with_its_volume_is_read_to_its_end() {
    let mut met = 0;
    for pages in 1024..1072 {
        let capacity_bytes = pages * 4096;
        let mut driver = Driver::new(TierConfig { capacity_bytes: Some(capacity_bytes), ..crowded() });
        // Twice as many as fit.
        for number in 0..8000 {
            assert!(matches!(driver.put(number, 1000), Reply::Done { .. }));
            if driver.write_end == capacity_bytes {
                driver.run_until_idle();
                break;
            }
        }
        met += u32::from(driver.write_end == capacity_bytes);
        let segments = driver.statistic("ssd_segments");
        let report = driver.restart(Ending::Kill);
        driver.sound();
        assert_eq!(report.segments, segments, "on a volume of {pages} pages");
        let hits = driver.hits(0..8000, 1000) as u64;
        assert!(hits > 1500, "{hits} hits on a volume of {pages} pages: {report:?}");
    }
    assert!(met > 0, "no log ended with its volume");
}
