//! [`Blobs`]: values that are too long for a unit of the log. They are written to value files of
//! their own, those are installed, and only then the records that point to them go into the log. A
//! crash in between leaves files that no record points to: they are *unreferenced*, and opening
//! frees them.
//! Writers wait in the scheduler ([`WaitFor::BlobWrite`]); those of one tick are written together.

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt, HashSet};
use stratakv_base::fault_point;
use stratakv_engine::{Effects, Error};
use stratakv_pmem::Pmem;

use crate::cursor::{Cursor, Stop};
use crate::entry::{Body, Pointer, value_checksum};
use crate::install::Made;
use crate::levels::Change;
use crate::matrix::Matrix;
use crate::operations::Work;
use crate::output::{Output, Role};
use crate::scheduler::WaitFor;
use crate::table::values::ValuesWriter;
use crate::volume::ValueFile;

/// A long value that lies on the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) file: u64,
    value_bytes: u64,
}

impl Placed {
    /// What the record with this version says.
    pub(crate) fn pointer(self, version: u64, value: &[u8]) -> Pointer {
        let checksum = value_checksum(version, value);
        Pointer { file: self.file, offset: 0, value_bytes: value.len() as u32, checksum }
    }
}

/// Long values on their way.
#[derive(Debug)]
pub(crate) struct BlobWrite {
    /// The writes that wait, each with its values.
    waiting: Vec<(u64, Vec<Placed>)>,
    pub(crate) outputs: Vec<Output>,
}

impl BlobWrite {
    fn is_written(&self) -> bool {
        self.outputs.iter().all(Output::is_written)
    }

    /// Whether all of it is committed: prepare records of batches that an opening found.
    fn is_committed<P: Pmem>(&self, matrix: &Matrix<P>) -> bool {
        self.waiting
            .iter()
            .all(|(id, _)| matrix.scheduler.get(*id).is_some_and(|suspended| suspended.work.is_decided()))
    }

    /// What an installation adds.
    pub(crate) fn change(&self) -> Change {
        let placed = self.waiting.iter().flat_map(|(_, placed)| placed);
        let values = placed.map(|placed| ValueFile {
            file: placed.file,
            extents: Vec::new(),
            bytes: placed.value_bytes,
            live_bytes: placed.value_bytes,
            unreferenced: true,
        });
        Change { values: values.collect(), ..Change::default() }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Blobs {
    write: Option<BlobWrite>,
    /// Pages that a long value waits for.
    wanted_pages: u64,
    /// Bytes of values that were written ahead of a record that never came, by file.
    unreferenced: HashMap<u64, u64>,
}

impl Blobs {
    /// With files that no record of the container points to.
    pub(crate) fn new(unreferenced: HashMap<u64, u64>) -> Blobs {
        Blobs { write: None, wanted_pages: 0, unreferenced }
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.write.is_some()
    }

    /// Pages that nobody else may take.
    pub(crate) fn wanted_pages(&self) -> u64 {
        self.wanted_pages
    }

    /// A long value found no room for so many pages.
    pub(crate) fn want(&mut self, pages: u64) {
        self.wanted_pages = self.wanted_pages.max(pages);
    }

    /// Files that are being written.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = &Output> {
        self.write.iter().flat_map(|write| &write.outputs)
    }

    /// A write of a file is done. Whether it is one of these.
    pub(crate) fn output_written(&mut self, file: u64) -> bool {
        let mut outputs = self.write.iter_mut().flat_map(|write| &mut write.outputs);
        outputs.find(|output| output.file() == file).map(Output::written).is_some()
    }

    /// Files that the next manifest gives up, and bytes of them.
    pub(crate) fn unreferenced(&self) -> &HashMap<u64, u64> {
        &self.unreferenced
    }

    /// No record points to these. Whether there are any of which that was not known.
    pub(crate) fn add_unreferenced(&mut self, files: impl IntoIterator<Item = (u64, u64)>) -> bool {
        let before = self.unreferenced.len();
        self.unreferenced.extend(files);
        self.unreferenced.len() > before
    }

    /// They are given up.
    pub(crate) fn forget_unreferenced(&mut self, files: &[u64]) {
        files.iter().for_each(|file| _ = self.unreferenced.remove(file));
    }
}

impl<P: Pmem> Matrix<P> {
    /// Begins to write the long values that wait; installs those that are written.
    pub(crate) fn pump_spills(&mut self, effects: &mut Effects) {
        if !self.blobs.is_writing() && self.scheduler.is_awaited(WaitFor::BlobWrite) {
            self.begin_blob_write();
        }
        let is_written = self.installer.is_idle() && self.blobs.write.as_ref().is_some_and(BlobWrite::is_written);
        if is_written
            && !self.volume.waits_for(self.manifest_pages())
            && let Some(blob_write) = self.blobs.write.take()
            && let Err(made) = self.begin_install(Made::BlobWrite(blob_write))
            && let Made::BlobWrite(blob_write) = *made
        {
            self.refuse_or_reclaim(&blob_write, effects);
        }
    }

    /// Hands the pages to the device. What is committed had its room before the crash. The reserve
    /// may have grown since, so it takes what files leave, as compactions do.
    pub(crate) fn pump_spilled(&mut self, effects: &mut Effects) {
        let Some(mut blob_write) = self.blobs.write.take() else { return };
        let is_asked = !blob_write.is_committed(self);
        let written = blob_write.outputs.iter_mut().try_for_each(|output| self.pump_output(output, is_asked, effects));
        self.blobs.write = Some(blob_write);
        if written.is_err() {
            self.blob_write_again(effects);
        }
    }

    fn begin_blob_write(&mut self) {
        let mut blob_write = BlobWrite { waiting: Vec::new(), outputs: Vec::new() };
        // Of several writers as much as may wait in memory; at least one, and no more where there
        // is hardly room: who finds none is not to keep it from others.
        let mut is_alone = self.blobs.wanted_pages > 0;
        fault_point!("trial_long_values_fail_together", is_alone = false);
        let mut bytes = 0;
        let most = (self.memory.outside_bytes_max() as usize / 2).min(16 << 20);
        while (blob_write.waiting.is_empty() || (bytes < most && !is_alone))
            && let Some(id) = self.scheduler.next(WaitFor::BlobWrite)
        {
            let Some(suspended) = self.scheduler.get_mut(id) else { continue };
            let values = std::mem::take(&mut suspended.long_values);
            bytes += values.iter().map(Bytes::len).sum::<usize>();
            let placed = values.iter().map(|value| {
                let mut output = Output::new(self.installer.new_file(), Role::Values);
                let mut writer = ValuesWriter::default();
                writer.add(value, &mut |page| output.push(page));
                writer.finish(&mut |page| output.push(page));
                output.end();
                let placed = Placed { file: output.file(), value_bytes: value.len() as u64 };
                blob_write.outputs.push(output);
                placed
            });
            let placed = placed.collect();
            blob_write.waiting.push((id, placed));
        }
        // Whoever asked may have ended meanwhile.
        self.blobs.write = Some(blob_write).filter(|blob_write| !blob_write.waiting.is_empty());
    }

    /// The values are on the volume: their writes go on.
    pub(crate) fn blob_write_ended(&mut self, blob_write: BlobWrite) {
        self.blobs.wanted_pages = 0;
        for (id, values) in blob_write.waiting {
            let Some(suspended) = self.scheduler.get_mut(id) else {
                self.blobs.add_unreferenced(values.into_iter().map(|placed| (placed.file, placed.value_bytes)));
                continue;
            };
            if let Some(placed) = suspended.work.placed() {
                *placed = values;
            }
            self.scheduler.wait(WaitFor::Step, id);
        }
    }

    /// There is no room for long values: they are written again if something can be reclaimed.
    pub(crate) fn blob_write_again(&mut self, effects: &mut Effects) {
        let Some(mut blob_write) = self.blobs.write.take() else { return };
        self.drop_outputs(std::mem::take(&mut blob_write.outputs));
        self.refuse_or_reclaim(&blob_write, effects);
    }

    /// Long values find no room: their writes wait while something can be cleared away.
    fn refuse_or_reclaim(&mut self, blob_write: &BlobWrite, effects: &mut Effects) {
        let fails = self.compactor.verdict().is_some();
        let waits = !fails && (self.reclaim() || !self.compactor.rests() || self.end_snapshot_that_keeps());
        for (id, placed) in &blob_write.waiting {
            match self.scheduler.get_mut(*id) {
                // Alone it takes room that others may not.
                Some(suspended) if suspended.work.is_decided() && blob_write.waiting.len() > 1 => {
                    self.blobs.want(1);
                    self.scheduler.wait(WaitFor::Step, *id);
                }
                Some(suspended) if waits && (!self.compactor.rests() || !suspended.insists) => {
                    suspended.insists |= self.compactor.rests();
                    let bytes = placed.iter().map(|placed| placed.value_bytes).sum::<u64>();
                    self.blobs.want(bytes.div_ceil(4096) + placed.len() as u64);
                    self.scheduler.wait(WaitFor::VolumeRoom, *id);
                }
                _ => {
                    (self.blobs.wanted_pages, self.counters.full_refusals) = (0, self.counters.full_refusals + 1);
                    self.fail_operation(*id, Error::Full("the volume has no room for a long value"), effects);
                }
            }
        }
        self.go_on_without_blob_write();
        effects.more();
    }

    /// What rested for the sake of a value that is refused goes on.
    fn go_on_without_blob_write(&mut self) {
        fault_point!("trial_compaction_rests_for_refused_values", return);
        if self.blobs.wanted_pages == 0 && !self.is_tight() {
            self.compactor.wake();
        }
    }

    /// Long values cannot be written.
    pub(crate) fn fail_blob_write(&mut self, error: &Error, effects: &mut Effects) {
        let Some(mut blob_write) = self.blobs.write.take() else { return };
        self.drop_outputs(std::mem::take(&mut blob_write.outputs));
        self.refuse(&blob_write, error, effects);
        fault_point!("trial_failed_values_keep_their_claim", return self.go_on_without_blob_write());
        self.blobs.wanted_pages = 0;
        self.go_on_without_blob_write();
    }

    pub(crate) fn refuse(&mut self, blob_write: &BlobWrite, error: &Error, effects: &mut Effects) {
        for (id, _) in &blob_write.waiting {
            self.counters.full_refusals += u64::from(matches!(error, Error::Full(_)));
            self.fail_operation(*id, error.clone(), effects);
        }
    }

    /// A write is over without a record: what was written ahead of it is nobody's.
    pub(crate) fn note_unreferenced(&mut self, work: &mut Work) {
        for placed in work.placed().into_iter().flat_map(std::mem::take) {
            self.blobs.add_unreferenced([(placed.file, placed.value_bytes)]);
        }
    }

    /// Unreferenced files to which no record of the container points. O(records of the container)
    /// if there are unreferenced files, else O(files).
    ///
    /// # Errors
    /// [`Stop::Damaged`].
    pub(crate) fn unclaimed(&self) -> Result<HashMap<u64, u64>, Stop> {
        let unreferenced = self.levels.value_files().filter(|values| values.unreferenced);
        let mut unclaimed: HashMap<u64, u64> = unreferenced.map(|values| (values.file, values.live_bytes)).collect();
        if unclaimed.is_empty() {
            return Ok(HashMap::new());
        }
        let mut claimed = HashSet::<u64>::default();
        for mut cursor in self.container.cursors() {
            cursor.seek(&[])?;
            while let Some(meta) = cursor.meta() {
                if let Body::Blob(pointer) = meta.body {
                    claimed.insert(pointer.file);
                }
                cursor.next()?;
            }
        }
        unclaimed.retain(|file, _| !claimed.contains(file));
        Ok(unclaimed)
    }
}
