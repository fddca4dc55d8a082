//! PUBLISH and SPUBLISH: the message goes out when the command, or the transaction that it is in,
//! has been carried out.

use std::borrow::Cow;

use super::super::arguments::RequestRefusal;
use super::super::pubsub::{CHANNEL_NAME_BYTES_MAX, ListenKind};
use super::super::records::{Call, Records};

#[expect(clippy::ptr_arg, reason = "it is a command's core")]
pub(crate) fn publish(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Result<(), RequestRefusal> {
    let kind = if call.a.is(0, "SPUBLISH") { ListenKind::ShardChannel } else { ListenKind::Channel };
    if call.a.get(1).len() > CHANNEL_NAME_BYTES_MAX {
        return Err(Cow::Owned(format!("ERR the name of a channel has at most {CHANNEL_NAME_BYTES_MAX} bytes")));
    }
    // How many have got it is written there once it is known.
    records.publish(out.len(), kind, (call.a.bytes(1), call.a.bytes(2)));
    Ok(())
}
